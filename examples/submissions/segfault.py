#!/usr/bin/env python3
# Is killed by SIGSEGV, as a program in C with a bad pointer would be.
import os
import signal

os.kill(os.getpid(), signal.SIGSEGV)
signal.pause()
