package main

// skippedHere are the calls that only this architecture has.
var skippedHere []uintptr
