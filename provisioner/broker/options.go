package broker

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/seal"
)

// Settings of the server that are the same for every installation.
const (
	maxControlLine = 16 << 10    // a sealed token of 11 KiB in CONNECT, whose other members take 314 bytes
	maxPayload     = 8 << 20     // what provisioners may publish. Nodes' accounts have limits of their own
	maxMemoryBytes = 64 << 20    // JetStream's streams in memory; we have none
	pingInterval   = time.Minute // with maxPingsOut, a dead peer holds its place for three minutes
	maxPingsOut    = 2
	// noShortFirstPing: nats-server sends each client a PING two seconds after it has read its CONNECT,
	// admitted or not, and a client that gets one before the PONG gives up: nats.go, and most other clients.
	// So a client that waited for longer was lost when it was admitted, and came again: a storm of 20,000 nodes at
	// three brokers on two slow cores never ended (make chaos). nats-server's own wait is handshake.
	noShortFirstPing = true
	maxClosed        = 16 // ended connections that nats-server remembers; its default is 10,000 of 1.5 KB
)

// What does not fit keeps this from being compiled: the longest sealed token with
// the rest of CONNECT, and the longest sealed reply.
const (
	_ = uint(maxControlLine - seal.MaxSealedTokenBytes - 400)
	_ = uint(maxPayload - seal.MaxReplyBytes)
)

// learnAccounts looks up the accounts of a server that has not started yet.
func (a *authentication) learnAccounts(s *server.Server) (err error) {
	a.accounts = make(map[string]*server.Account)
	for _, name := range []string{AccountProvisioning, AccountFleet, AccountMuster} {
		if a.accounts[name], err = s.LookupAccount(name); err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
	}
	return nil
}

// options returns the server's options.
func (b *Broker) options(auth *authentication) (*server.Options, error) {
	opts := &server.Options{}
	if err := opts.ProcessConfigString(accountsConfig(maxProvisioning(b.cfg.MaxConnections), true, nil)); err != nil {
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
	opts.SyncAlways = !b.cfg.Unsynced // or one replica acknowledges up to two minutes before it syncs

	opts.TLSConfig = b.tlsConfig()
	opts.AllowNonTLS = true
	opts.TLSTimeout = handshake.Seconds()
	opts.AuthTimeout = handshake.Seconds()
	opts.CustomClientAuthentication = auth
	opts.AlwaysEnableNonce = true

	b.webSocketOptions(&opts.Websocket)

	opts.MaxConn = b.cfg.MaxConnections
	opts.MaxControlLine = maxControlLine
	opts.MaxPayload = maxPayload
	opts.PingInterval = pingInterval
	opts.MaxPingsOut = maxPingsOut
	opts.DisableShortFirstPing = noShortFirstPing
	opts.MaxClosedClients = maxClosed
	return opts, nil
}

// tlsConfig returns what TLS connections are accepted with.
func (b *Broker) tlsConfig() *tls.Config {
	return &tls.Config{
		GetCertificate: b.shown,
		ClientCAs:      b.cfg.ClientCAs,
		ClientAuth:     tls.VerifyClientCertIfGiven,
		MinVersion:     tls.VersionTLS12,
		Time:           b.cfg.Gate.Now,
		// A resumed session would carry over a verification made earlier.
		SessionTicketsDisabled: true,
	}
}

// shown returns the certificate for new connections.
func (b *Broker) shown(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := b.certificate.Load()
	if len(c.Certificate) == 0 {
		return nil, ErrNoCertificate
	}
	return c, nil
}
