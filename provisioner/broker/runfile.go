package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/sdnotify"
)

// Defaults within the stop time-outs of Kubernetes (30 s) and systemd (90 s).
const (
	stopGrace    = time.Second      // for requests in progress
	stopDuration = 10 * time.Second // in all; nats-server's default is two minutes
)

// ErrConfigFile means that a server's configuration file is unusable.
var ErrConfigFile = errors.New("configuration of the broker")

// StartRoom is the free space that a start needs, for streams and the first writes.
const StartRoom = 16 << 20

// RunFile runs nats-server with a configuration file until ctx is done or SIGUSR2. SIGHUP reloads the file. The
// error may wrap [ErrStoreFailed].
//
// Unlike nats-server, it lets provisioners decide about TLS clients without certificates, ends when its store has
// failed, and always stops in lame-duck mode.
func RunFile(ctx context.Context, path string, log *slog.Logger) error {
	opts, err := fileOptions(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfigFile, err)
	}
	if opts.JetStream {
		if err := disk.NeedRoom(opts.StoreDir, StartRoom); err != nil {
			return err
		}
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGUSR2)
	defer stop()
	r, err := serve(ctx, opts, newNATSLog(log), "", func(*server.Server) error { return nil })
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	log.InfoContext(ctx, "broker is running", "broker", r.ClientURL(), "path", path)
	manager := sdnotify.New(log)
	manager.Ready()
	ended := make(chan error, 1)
	go func() { ended <- r.watch(ctx, log) }()
	beat := time.NewTicker(healthEvery)
	defer beat.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return err // a shutdown would write an index of data that is not on disk
			}
			manager.Stopping()
			log.InfoContext(ctx, "broker stopping, clients move to other brokers")
			r.stop(r.LameDuckShutdown)
			return nil
		case <-reload:
			manager.Reloading()
			r.reload(ctx, path, log)
			manager.Ready()
		case <-beat.C:
			r.NumClients() // takes the server's lock; a disk that does not answer is no reason to restart
			manager.Alive()
		}
	}
}

func (r *runningServer) watch(ctx context.Context, log *slog.Logger) error {
	if r.lock == nil {
		<-ctx.Done()
		return nil
	}
	return watchHealth(ctx, r.failed, func(err error) {
		if err != nil {
			log.ErrorContext(ctx, "store does not answer", "err", err)
		}
	})
}

func (r *runningServer) reload(ctx context.Context, path string, log *slog.Logger) {
	opts, err := fileOptions(path)
	if err == nil {
		err = r.ReloadOptions(opts)
	}
	if err != nil {
		log.ErrorContext(ctx, "configuration not reloaded, the old one stays in use", "path", path, "err", err)
		return
	}
	log.InfoContext(ctx, "configuration reloaded", "path", path)
}

func fileOptions(path string) (*server.Options, error) {
	f, err := inputfile.Open(path, inputfile.Configured)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: write it with `muster broker config`", err)
	case err != nil:
		return nil, fmt.Errorf("%w: a nats-server configuration as `muster broker config` prints it", err)
	}
	_ = f.Close() // nats-server reads it
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		why := strings.TrimSpace(err.Error())
		if !strings.Contains(why, path) { // some errors already name it, one per line
			why = path + ": " + why
		}
		return nil, fmt.Errorf("%s: correct the file, or print it again with `muster broker config`", why)
	}
	if admitsEveryClient(opts) {
		return nil, fmt.Errorf("%s: requires no authentication, so the file may be incomplete: "+
			"write it with `muster broker config`", path)
	}
	opts.NoSigs, opts.NoLog = true, true
	opts.DisableJetStreamBanner = true
	opts.DisableShortFirstPing = noShortFirstPing // the file format has no such option
	if opts.LameDuckDuration == 0 && opts.LameDuckGracePeriod == 0 {
		opts.LameDuckGracePeriod, opts.LameDuckDuration = stopGrace, stopDuration
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
		opts.TLSConfig.SessionTicketsDisabled = true
	}
	return opts, nil
}

func admitsEveryClient(o *server.Options) bool {
	return o.AuthCallout == nil && o.Username == "" && o.Authorization == "" &&
		len(o.Users) == 0 && len(o.Nkeys) == 0 && len(o.TrustedOperators) == 0 && len(o.TrustedKeys) == 0 &&
		!o.TLSVerify && !o.TLSMap
}
