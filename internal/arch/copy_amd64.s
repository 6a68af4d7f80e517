//go:build !race

#include "textflag.h"

// func copyAside(dst, src *byte, n int)
TEXT ·copyAside(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), BX

	// Up to where dst has a line of its own.
	MOVQ DI, CX
	NEGQ CX
	ANDQ $63, CX
	CMPQ CX, BX
	CMOVQGT BX, CX
	SUBQ CX, BX
	REP
	MOVSB

	MOVQ BX, CX
	ANDQ $63, CX
	SHRQ $6, BX
	JZ   tail

lines:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVNTO X0, (DI)
	MOVNTO X1, 16(DI)
	MOVNTO X2, 32(DI)
	MOVNTO X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ BX
	JNZ  lines

	// Such stores keep no order: the others come behind them.
	SFENCE

tail:
	REP
	MOVSB
	RET
