package arch

import "sync/atomic"

// storeReference32 says what StoreRelease32 does, and does more: sync/atomic
// is sequentially consistent.
func storeReference32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// storeReference64 says what StoreRelease64 does.
func storeReference64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
