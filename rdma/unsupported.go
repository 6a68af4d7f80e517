package rdma

import "context"

// The types below answer the verbs that not every device has with an error
// wrapping ErrNotSupported. A provider embeds them in its own types and writes
// the verbs that it has; it keeps compiling when verbs are added here.
type (
	// UnsupportedContext is embedded in a type of Context that lacks these features.
	UnsupportedContext struct{}
	// UnsupportedPD is embedded in a type of PD that lacks these features.
	UnsupportedPD struct{}
	// UnsupportedMR is embedded in a type of MR that lacks this feature.
	UnsupportedMR struct{}
	// UnsupportedCQ is embedded in a type of CQ that lacks these features.
	UnsupportedCQ struct{}
	// UnsupportedQP is embedded in a type of QP that lacks this feature.
	UnsupportedQP struct{}
	// UnsupportedSRQ is embedded in a type of SRQ that lacks this feature.
	UnsupportedSRQ struct{}
)

func unsupported(op string) error { return &OpError{op, "this device cannot", ErrNotSupported} }

func (UnsupportedContext) CreateCQEx(CQInitAttr) (CQ, error) { return nil, unsupported("create_cq_ex") }
func (UnsupportedContext) CreateCompChannel() (CompChannel, error) {
	return nil, unsupported("create_comp_channel")
}
func (UnsupportedContext) OpenXRCD(XRCDInitAttr) (XRCD, error) { return nil, unsupported("open_xrcd") }
func (UnsupportedContext) OpenQP(uint32, XRCD) (QP, error)     { return nil, unsupported("open_qp") }
func (UnsupportedContext) GetAsyncEvent(context.Context) (AsyncEvent, error) {
	return AsyncEvent{}, unsupported("get_async_event")
}

func (UnsupportedPD) RegMRIOVA([]byte, uint64, Access) (MR, error) {
	return nil, unsupported("reg_mr_iova")
}
func (UnsupportedPD) RegDMABufMR(_, _, _ uint64, _ int, _ Access) (MR, error) {
	return nil, unsupported("reg_dmabuf_mr")
}
func (UnsupportedPD) AdviseMR(Advice, AdviseFlags, []SGE) error { return unsupported("advise_mr") }
func (UnsupportedPD) ShareVA() (SVA, error)                     { return nil, unsupported("share_va") }
func (UnsupportedPD) AllocMW(MWType) (MW, error)                { return nil, unsupported("alloc_mw") }
func (UnsupportedPD) CreateMkey(int) (Mkey, error)              { return nil, unsupported("create_mkey") }
func (UnsupportedPD) CreateAH(AV) (AH, error)                   { return nil, unsupported("create_ah") }
func (UnsupportedPD) CreateSRQ(SRQInitAttr) (SRQ, error)        { return nil, unsupported("create_srq") }

func (UnsupportedMR) Rereg(ReregFlags, PD, []byte, Access) error { return unsupported("rereg_mr") }

func (UnsupportedCQ) PollEx([]WCEx) (int, error) { return 0, unsupported("start_poll") }
func (UnsupportedCQ) ReqNotify(bool) error       { return unsupported("req_notify_cq") }
func (UnsupportedCQ) Resize(int) error           { return unsupported("resize_cq") }

func (UnsupportedQP) BindMW(MW, uint64, SendFlags, MWBind) error { return unsupported("bind_mw") }

func (UnsupportedSRQ) PostOps([]OpsWR) (int, error) { return 0, unsupported("post_srq_ops") }
