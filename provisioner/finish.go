package provisioner

import (
	"context"
	"time"
)

// A healthy store answers within milliseconds.
const finishTimeout = 5 * time.Second

// Finishing returns a context that ends finishTimeout after ctx, so that no change is cut off between its write and
// its event.
func Finishing(ctx context.Context) (finishing context.Context, end func()) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	given := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finishTimeout, cancel)
		context.AfterFunc(finishing, func() { timer.Stop() })
	})
	return finishing, func() { given(); cancel() }
}
