#include "textflag.h"

// func PrefetchWrite(p *uint64, lines int)
TEXT ·PrefetchWrite(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), BX
next:
	SUBQ $1, BX
	JLT  done
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	JMP  next
done:
	RET

// func PrefetchRead(p *uint64, lines int)
TEXT ·PrefetchRead(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), BX
next:
	SUBQ $1, BX
	JLT  done
	PREFETCHT0 (AX)
	ADDQ $64, AX
	JMP  next
done:
	RET
