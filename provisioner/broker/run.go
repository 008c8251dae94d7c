package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/disk"
)

const (
	startTimeout = time.Minute

	listenTry = 50 * time.Millisecond
)

type runningServer struct {
	*server.Server
	account string   // account of the streams; empty means all
	store   string   // directory
	lock    *os.File // nil without a store
	staged  string   // batch directory in memory, see [Broker.StageBatches]; may be empty
}

// serve returns once the server listens and has read its streams. After an error nothing is left running.
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
		if r.lock, err = Lock(r.store); err != nil {
			return err
		}
		if err := removeIndexes(r.store); err != nil {
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
	return checkDamage(r.Server, r.account)
}

// ready waits for the listener. A server that cannot start reports the reason only to its logger.
func (r *runningServer) ready(ctx context.Context, log *natsLog) error {
	for end := time.Now().Add(startTimeout); ; {
		listens := r.ReadyForConnections(listenTry)
		switch err := log.failed(); {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case listens && r.lock != nil && !r.JetStreamEnabled():
			return errors.New("JetStream did not start")
		case listens:
			return nil
		case time.Now().After(end):
			return errors.New("not listening")
		}
	}
}

// failed reports write errors, and a directory that is not the one that was opened.
func (r *runningServer) failed() error {
	if err := disk.InPlace(r.lock); err != nil {
		return err
	}
	if err := healthOf(r.Server, r.account, isWriteError); !errors.Is(err, errBusy) {
		return err
	}
	return nil // the next check decides
}

func (r *runningServer) stop(end func()) {
	end()
	r.WaitForShutdown()
	if r.staged != "" {
		_ = os.RemoveAll(r.staged) // the next start removes leftovers
	}
	r.release()
}

func (r *runningServer) release() {
	if r.lock != nil {
		Unlock(r.lock)
	}
}

// Start returns once all streams are read and connections accepted. The error may wrap [ErrStoreInUse] or
// [ErrStoreDamaged].
func (b *Broker) Start(ctx context.Context) error {
	// The gate is used until Stop, also after ctx has ended.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	auth := &authentication{b: b, life: life}
	opts, err := b.options(auth)
	if err != nil {
		cancel()
		return fmt.Errorf("start broker: %w", err)
	}
	r, err := serve(ctx, opts, b.log, AccountMuster, auth.lookupAccounts)
	if err != nil {
		cancel()
		return fmt.Errorf("start broker: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.server, b.cancel = r, cancel
	return nil
}

// Stop loses messages in flight: drain your own connections first. If ctx ends earlier, the shutdown continues. A
// second call is no error.
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
