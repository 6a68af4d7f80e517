#include "textflag.h"

// Numbers of Linux: system calls, limits.
#define WRITE 1
#define GETRLIMIT 97
#define GETEUID 107
#define EXIT_GROUP 231
#define RLIMIT_NPROC 6
#define RLIMIT_AS 9

// What is too little; see the package. In bytes.
#define SPACE_ENOUGH 1433600000    // 1400000 kB
#define TASKS_LEAST 12

DATA space<>+0(SB)/8, $"gorun: u"
DATA space<>+8(SB)/8, $"limit -v"
DATA space<>+16(SB)/8, $" allows "
DATA space<>+24(SB)/8, $"too litt"
DATA space<>+32(SB)/8, $"le addre"
DATA space<>+40(SB)/8, $"ss space"
DATA space<>+48(SB)/8, $" for a p"
DATA space<>+56(SB)/8, $"rogram o"
DATA space<>+64(SB)/8, $"f Go, wh"
DATA space<>+72(SB)/8, $"ich rese"
DATA space<>+80(SB)/8, $"rves it "
DATA space<>+88(SB)/8, $"without "
DATA space<>+96(SB)/8, $"using it"
DATA space<>+104(SB)/8, $": raise "
DATA space<>+112(SB)/8, $"it to 15"
DATA space<>+120(SB)/8, $"00000 (k"
DATA space<>+128(SB)/8, $"B) or mo"
DATA space<>+136(SB)/8, $"re\n\n\n\n\n\n"
GLOBL space<>(SB), RODATA, $144

DATA tasks<>+0(SB)/8, $"gorun: u"
DATA tasks<>+8(SB)/8, $"limit -u"
DATA tasks<>+16(SB)/8, $" allows "
DATA tasks<>+24(SB)/8, $"fewer th"
DATA tasks<>+32(SB)/8, $"an 12 pr"
DATA tasks<>+40(SB)/8, $"ocesses "
DATA tasks<>+48(SB)/8, $"and thre"
DATA tasks<>+56(SB)/8, $"ads: a j"
DATA tasks<>+64(SB)/8, $"ob needs"
DATA tasks<>+72(SB)/8, $" about 1"
DATA tasks<>+80(SB)/8, $"0, and t"
DATA tasks<>+88(SB)/8, $"hose of "
DATA tasks<>+96(SB)/8, $"its rank"
DATA tasks<>+104(SB)/8, $"s; raise"
DATA tasks<>+112(SB)/8, $" it\n\n\n\n\n"
GLOBL tasks<>(SB), RODATA, $120

// func enter()
//
// The kernel has left the arguments at the stack pointer, where the runtime looks for
// them, and no return address. There is no runtime yet: no g, no stack check.
TEXT ·enter(SB), NOSPLIT|NOFRAME, $0
	SUBQ $32, SP
	MOVQ $GETRLIMIT, AX
	MOVQ $RLIMIT_AS, DI
	MOVQ SP, SI
	SYSCALL
	TESTQ AX, AX
	JNE  tasks
	MOVQ 0(SP), CX
	MOVQ $space<>(SB), SI
	MOVQ $139, DX
	CMPQ CX, $SPACE_ENOUGH
	JCS  refuse

tasks:
	MOVQ $GETRLIMIT, AX
	MOVQ $RLIMIT_NPROC, DI
	MOVQ SP, SI
	SYSCALL
	TESTQ AX, AX
	JNE  on
	MOVQ 0(SP), CX
	CMPQ CX, $TASKS_LEAST
	JCC  on
	MOVQ $GETEUID, AX // root has no such limit
	SYSCALL
	TESTQ AX, AX
	JEQ  on
	MOVQ $tasks<>(SB), SI
	MOVQ $116, DX

refuse:
	MOVQ $WRITE, AX
	MOVQ $2, DI
	SYSCALL
	MOVQ $EXIT_GROUP, AX
	MOVQ $125, DI
	SYSCALL

on:
	ADDQ $32, SP
	JMP  _rt0_amd64_linux(SB)
