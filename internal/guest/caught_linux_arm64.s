#include "textflag.h"

DATA one<>+0(SB)/8, $1
GLOBL one<>(SB), RODATA, $8

DATA ·onSignal+0(SB)/8, $handler<>(SB)
GLOBL ·onSignal(SB), RODATA, $8

// handler adds 1 to the eventfd of the signal in R0. The kernel saves and restores all registers.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·caught(SB), R3
	MOVW (R3)(R0<<2), R0
	MOVD $one<>(SB), R1
	MOVD $8, R2
	MOVD $64, R8 // write
	SVC
	RET
