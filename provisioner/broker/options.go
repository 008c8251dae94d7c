package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Settings of the server that nobody needs to change.
const (
	maxControlLine = 16 << 10    // a token of 8 KiB in CONNECT, whose other members take 200 bytes
	maxPayload     = 1 << 20     // what provisioners may publish; wire.MaxReplyBytes and headers fit
	maxMemoryBytes = 64 << 20    // JetStream's streams in memory; we have none
	pingInterval   = time.Minute // with maxPingsOut, a dead peer holds its place for three minutes
	maxPingsOut    = 2
)

// newServer returns a server that is not yet running.
func (b *Broker) newServer(life context.Context) (*server.Server, error) {
	auth := &authentication{b: b, life: life}
	opts, err := b.options(auth)
	if err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("nats server: %w", err)
	}
	s.SetLoggerV2(b.log, false, false, false)
	auth.accounts = make(map[string]*server.Account)
	for _, name := range []string{AccountProvisioning, AccountFleet, AccountMuster} {
		if auth.accounts[name], err = s.LookupAccount(name); err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
	}
	return s, nil
}

// options returns the server's options.
func (b *Broker) options(auth *authentication) (*server.Options, error) {
	opts := &server.Options{}
	if err := opts.ProcessConfigString(accountsConfig(b.cfg.MaxProvisioning)); err != nil {
		return nil, fmt.Errorf("accounts: %w", err)
	}
	opts.ServerName = "muster"
	opts.Host, opts.Port = b.host, b.port
	opts.NoSigs, opts.NoLog = true, true

	opts.JetStream = true
	opts.DisableJetStreamBanner = true
	opts.StoreDir = b.cfg.StoreDir
	opts.JetStreamMaxStore = b.cfg.MaxStoreBytes
	opts.JetStreamMaxMemory = maxMemoryBytes
	opts.SyncAlways = true // or one replica acknowledges up to two minutes before it syncs

	opts.TLSConfig = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return b.certificate.Load(), nil },
		ClientCAs:      b.cfg.ClientCAs,
		ClientAuth:     tls.VerifyClientCertIfGiven,
		MinVersion:     tls.VersionTLS12,
		Time:           b.cfg.Gate.Now,
		// A resumed session would carry over a verification made earlier.
		SessionTicketsDisabled: true,
	}
	opts.AllowNonTLS = true
	opts.TLSTimeout = b.cfg.Handshake.Seconds()
	opts.AuthTimeout = b.cfg.Handshake.Seconds()
	opts.CustomClientAuthentication = auth
	opts.AlwaysEnableNonce = true

	opts.MaxConn = b.cfg.MaxConnections
	opts.MaxControlLine = maxControlLine
	opts.MaxPayload = maxPayload
	opts.PingInterval = pingInterval
	opts.MaxPingsOut = maxPingsOut
	return opts, nil
}
