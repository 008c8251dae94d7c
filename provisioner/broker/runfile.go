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
)

// How a broker that is told to stop sends its clients away, unless its file says
// otherwise (lame_duck_grace_period, lame_duck_duration). Chosen: both together
// are well within the 30 s that Kubernetes, and the 90 s that systemd grant.
const (
	stopGrace    = time.Second      // for requests in hand
	stopDuration = 10 * time.Second // in all; nats-server's own is two minutes
)

// ErrConfigFile means that a server's configuration file cannot be used.
var ErrConfigFile = errors.New("configuration of the broker")

// RunFile runs a server with a configuration file of nats-server's, as
// [ServerConfig.Text] is one, until ctx is done, or SIGUSR2; it then stops and
// returns nil. The error says why it did not start, or wraps [ErrStoreFailed]. On SIGHUP it reads its
// configuration and certificates again.
//
// It differs from nats-server in three things. Clients that come over TLS need not
// have a certificate: the provisioners decide about them. It ends when its store has failed. And it always
// stops in the way that nats-server calls lame duck: it takes no more clients,
// hands over what it leads, and sends its clients to other servers one by one,
// within ten seconds if the file does not say how long.
func RunFile(ctx context.Context, path string, log *slog.Logger) error {
	opts, err := fileOptions(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfigFile, err)
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
	ended := make(chan error, 1)
	go func() { ended <- r.watch(ctx, log) }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				return err // a shutdown would write an index of what is not on disk
			}
			log.InfoContext(ctx, "broker stopping: it takes no more clients, and sends those that it has to other brokers")
			// Shutdown alone drops clients without a word, and ended the process by a panic if
			// one asked for its authorization between two of its steps (before nats-server 2.15.3).
			r.stop(r.LameDuckShutdown)
			return nil
		case <-reload:
			r.reload(ctx, path, log)
		}
	}
}

// watch returns nil when ctx is done, and before that an error if the store has failed.
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

// reload reads the configuration file again. After an error the one before stays.
func (r *runningServer) reload(ctx context.Context, path string, log *slog.Logger) {
	opts, err := fileOptions(path)
	if err == nil {
		err = r.ReloadOptions(opts)
	}
	if err != nil {
		log.ErrorContext(ctx, "configuration not read again, the one before stays", "path", path, "err", err)
		return
	}
	log.InfoContext(ctx, "configuration read again", "path", path)
}

// fileOptions reads a configuration file.
func fileOptions(path string) (*server.Options, error) {
	if info, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: write it with `muster broker config`", err)
	} else if err == nil && info.Mode()&os.ModeDevice != 0 { // which may have no end
		return nil, fmt.Errorf("%s: is a device, want a configuration of nats-server's, as `muster broker config` prints it", path)
	}
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		why := strings.TrimSpace(err.Error())
		if !strings.Contains(why, path) { // as it is for some mistakes, one to a line
			why = path + ": " + why
		}
		return nil, fmt.Errorf("%s: correct it there, or print the file again with `muster broker config`", why)
	}
	if open(opts) {
		return nil, fmt.Errorf("%s: admits every client to everything, as an empty or half-written file does: write it with `muster broker config`", path)
	}
	opts.NoSigs, opts.NoLog = true, true
	opts.DisableJetStreamBanner = true
	opts.DisableShortFirstPing = noShortFirstPing // which no file can say
	if opts.LameDuckDuration == 0 && opts.LameDuckGracePeriod == 0 {
		opts.LameDuckGracePeriod, opts.LameDuckDuration = stopGrace, stopDuration
	}
	if opts.TLSConfig != nil {
		opts.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
		opts.TLSConfig.SessionTicketsDisabled = true
	}
	return opts, nil
}

// open reports whether a server with these options admits every client.
func open(o *server.Options) bool {
	return o.AuthCallout == nil && o.Username == "" && o.Authorization == "" && len(o.Users) == 0 && len(o.Nkeys) == 0 &&
		len(o.TrustedOperators) == 0 && len(o.TrustedKeys) == 0 && !o.TLSVerify && !o.TLSMap
}
