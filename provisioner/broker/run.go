package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// startTimeout bounds how long a server that has read its store may take to listen.
	startTimeout = time.Minute

	// listenTry is how often it is checked whether a server cannot start.
	listenTry = 50 * time.Millisecond
)

// A runningServer is a nats-server in this process, with the lock on its store directory.
type runningServer struct {
	*server.Server
	account string   // of the streams; empty means all
	store   string   // directory
	lock    *os.File // nil without a store
	staged  string   // directory in memory, see [Broker.StageBatches]; or empty
}

// serve starts a server, and returns it when it listens on each of its ports and has read its
// streams. Reading them takes seconds, and nothing interrupts that. prepare is called with the server
// before it starts. After an error nothing is left running. The error wraps ctx's,
// [ErrStoreInUse] or [ErrStoreDamaged] where that is the cause.
func serve(
	ctx context.Context, opts *server.Options, log *natsLog, account string, prepare func(*server.Server) error,
) (*runningServer, error) {
	r := &runningServer{account: account, store: opts.StoreDir}
	if err := r.start(ctx, opts, log, prepare); err != nil {
		if r.Server != nil {
			r.Shutdown()
			r.WaitForShutdown()
		}
		r.release()
		return nil, err
	}
	return r, nil
}

func (r *runningServer) start(
	ctx context.Context, opts *server.Options, log *natsLog, prepare func(*server.Server) error,
) (err error) {
	if opts.JetStream {
		if r.lock, err = lockDir(r.store); err != nil {
			return err
		}
		if err := forgetIndexes(r.store); err != nil {
			return err
		}
	}
	if r.Server, err = server.NewServer(opts); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	if err := prepare(r.Server); err != nil {
		return err
	}
	r.SetLoggerV2(log, false, false, false)
	r.Start()
	if err := r.ready(ctx, log); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	if r.lock == nil {
		return nil
	}
	return undamaged(r.Server, r.account)
}

// ready waits until the server listens, and reports why it is of no use. A server that cannot
// start says so to its logger alone, and looks as if it ran.
func (r *runningServer) ready(ctx context.Context, log *natsLog) error {
	for end := time.Now().Add(startTimeout); !r.ReadyForConnections(listenTry); {
		switch err := log.failed(); {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(end):
			return errors.New("not listening")
		}
	}
	switch err := log.failed(); {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.lock != nil && !r.JetStreamEnabled():
		return errors.New("JetStream did not start")
	}
	return nil
}

// failed returns why the store has failed, or nil.
func (r *runningServer) failed() error { return storeFailed(r.Server, r.account, r.lock) }

// stop has end stop the server, and waits for it. The indexes of its streams count at the next start if
// the store was well.
func (r *runningServer) stop(end func()) {
	well := r.lock != nil && r.failed() == nil
	end()
	r.WaitForShutdown()
	if well {
		keepIndexes(r.store)
	}
	if r.staged != "" {
		_ = os.RemoveAll(r.staged) // the next start removes what stays
	}
	r.release()
}

func (r *runningServer) release() {
	if r.lock != nil {
		unlock(r.lock)
	}
}

// Start starts the broker and returns when it takes connections and JetStream
// is up with all its streams, or with an error when it cannot; see serve.
func (b *Broker) Start(ctx context.Context) error {
	// The gate's work for the server ends with the broker, not with the start.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	auth := &authentication{b: b, life: life}
	opts, err := b.options(auth)
	if err != nil {
		cancel()
		return fmt.Errorf("start broker: %w", err)
	}
	r, err := serve(ctx, opts, b.log, AccountMuster, auth.learnAccounts)
	if err != nil {
		cancel()
		return fmt.Errorf("start broker: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server, b.cancel = r, cancel
	return nil
}

// Stop stops the broker: it takes no more connections, ends those it has, closes
// the store and waits until everything has ended. Drain your own connections
// first: what is on its way is lost. If ctx is done earlier, it returns ctx's
// error, and the rest goes on by itself. Stopping twice, or what never ran, is
// no error. Do not stop while Start is at work.
func (b *Broker) Stop(ctx context.Context) error {
	b.mu.Lock()
	r, cancel := b.server, b.cancel
	b.server = nil
	b.mu.Unlock()
	if r == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel()
		r.stop(r.Shutdown)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop broker: %w", context.Cause(ctx))
	}
}
