"""What each verb does: functions of an open store, the arguments and a console, which return an exit code."""
