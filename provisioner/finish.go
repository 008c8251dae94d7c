package provisioner

import (
	"context"
	"time"
)

// finishTimeout is how long a change goes on after who asked for it has gone, or the
// process was told to stop. Chosen: a store that is well answers within
// milliseconds, and of one that does not within this time nobody should expect
// that an order given up long ago is carried out some day.
const finishTimeout = 5 * time.Second

// Finishing returns a context for a change that has begun: it has the values of
// ctx, and ends finishTimeout after ctx does, so that a change is finished whose operator has
// gone, or whose process was told to stop. Cut off between its write and its event, it would
// be on record and told to nobody: who repeats it finds it done. Callers call end
// when the change is over.
func Finishing(ctx context.Context) (finishing context.Context, end func()) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	given := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(finishTimeout, cancel)
		context.AfterFunc(finishing, func() { timer.Stop() })
	})
	return finishing, func() { given(); cancel() }
}
