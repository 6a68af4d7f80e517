#include "textflag.h"

// func PrefetchWrite(p *uint64, lines int)
TEXT ·PrefetchWrite(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
next:
	SUBS $1, R1, R1
	BLT  done
	PRFM (R0), PSTL1KEEP
	ADD  $64, R0
	JMP  next
done:
	RET

// func PrefetchRead(p *uint64, lines int)
TEXT ·PrefetchRead(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD lines+8(FP), R1
next:
	SUBS $1, R1, R1
	BLT  done
	PRFM (R0), PLDL1KEEP
	ADD  $64, R0
	JMP  next
done:
	RET
