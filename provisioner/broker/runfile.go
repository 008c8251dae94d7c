package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// fileReady bounds the start of a server; chosen, a large store takes seconds.
const fileReady = time.Minute

// RunFile runs a server with a configuration file of nats-server's, as
// [ServerConfig.Text] is one, until ctx is done; it then stops and returns nil.
// The error says why it did not start. On SIGHUP it reads its configuration and
// certificates again.
//
// It differs from nats-server in one thing: clients that come over TLS need not
// have a certificate. Who they are is for the provisioners to say.
func RunFile(ctx context.Context, path string, log *slog.Logger) error {
	opts, err := fileOptions(path)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	l := newNATSLog(log, nil)
	s.SetLoggerV2(l, false, false, false)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	s.Start()
	defer shutdown(s)
	if err := l.startFailure(); err != nil {
		return fmt.Errorf("nats server: %w", err)
	}
	if !s.ReadyForConnections(fileReady) {
		return errors.New("nats server: not listening")
	}
	log.InfoContext(ctx, "broker is running", "broker", s.ClientURL(), "path", path)
	for {
		select {
		case <-ctx.Done():
			log.InfoContext(ctx, "broker stopping")
			return nil
		case <-reload:
		}
		opts, err := fileOptions(path)
		if err == nil {
			err = s.ReloadOptions(opts)
		}
		if err != nil {
			log.ErrorContext(ctx, "configuration not read again, the one before stays", "path", path, "err", err)
		} else {
			log.InfoContext(ctx, "configuration read again", "path", path)
		}
	}
}

// fileOptions reads a configuration file.
func fileOptions(path string) (*server.Options, error) {
	opts, err := server.ProcessConfigFile(path)
	if err != nil {
		return nil, err // names the file already
	}
	opts.NoSigs, opts.NoLog = true, true
	opts.DisableJetStreamBanner = true
	if opts.TLSConfig != nil {
		opts.TLSConfig.ClientAuth = tls.VerifyClientCertIfGiven
		opts.TLSConfig.SessionTicketsDisabled = true
	}
	return opts, nil
}
