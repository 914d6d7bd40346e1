"""What a store looks like, as pages: facts are gathered once, turned into values to show, and written as HTML and SVG.

No Airflow here: the same pages are shown in Airflow's UI and written to a file by ``checkpoints report``.
"""
