#include "textflag.h"

// func callers(buf *uintptr, n int) int
TEXT ·callers(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ buf+0(FP), DI
	MOVQ n+8(FP), CX
	MOVQ 8(R14), R8 // the end of this goroutine's stack: g.stack.hi
	SUBQ $16, R8
	MOVQ SP, R9
	MOVQ BP, SI
	XORQ AX, AX
next:
	CMPQ AX, CX
	JGE  done
	CMPQ SI, R9 // frames lie one above the other
	JLS  done
	CMPQ SI, R8 // what is not on this stack is a frame of C, or none
	JHI  done
	MOVQ 8(SI), DX
	MOVQ DX, (DI)(AX*8)
	INCQ AX
	MOVQ SI, R9
	MOVQ 0(SI), SI
	JMP  next
done:
	MOVQ AX, ret+16(FP)
	RET
