#include "textflag.h"

DATA one<>+0(SB)/8, $1
GLOBL one<>(SB), RODATA, $8

DATA ·onSignal+0(SB)/8, $handler<>(SB)
GLOBL ·onSignal(SB), RODATA, $8

DATA ·afterSignal+0(SB)/8, $end<>(SB)
GLOBL ·afterSignal(SB), RODATA, $8

// handler adds 1 to the eventfd of the signal in DI. The kernel saves and restores all registers.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·caught(SB), R8
	MOVL (R8)(DI*4), DI
	LEAQ one<>(SB), SI
	MOVL $8, DX
	MOVL $1, AX // write
	SYSCALL
	RET

TEXT end<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVL $15, AX // rt_sigreturn
	SYSCALL
	INT  $3
