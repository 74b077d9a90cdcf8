# Written from frame_checks.py by tools/write_core_stubs.py: edit that file, then run the tool.

