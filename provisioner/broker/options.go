package broker

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/seal"
)

// Settings that are the same for every installation.
const (
	maxControlLine = 16 << 10    // fits a sealed token of 11 KiB; the rest of CONNECT takes 314 bytes
	maxPayload     = 8 << 20     // for provisioners; accounts of nodes have lower limits
	maxMemoryBytes = 64 << 20    // nats-server wants a limit; muster has no streams in memory
	pingInterval   = time.Minute // with maxPingsOut, a dead peer is dropped after three minutes
	maxPingsOut    = 2
	// noShortFirstPing: a PING before the admission makes nats.go give up. With such PINGs, a storm of 20,000 nodes
	// never ended (make chaos).
	noShortFirstPing = true
	maxClosed        = 16 // ended connections remembered; the default is 10,000 of 1.5 KB
)

// The build fails if a sealed token or reply does not fit.
const (
	_ = uint(maxControlLine - seal.MaxSealedTokenBytes - 400)
	_ = uint(maxPayload - seal.MaxReplyBytes)
)

func (a *authentication) lookupAccounts(s *server.Server) (err error) {
	a.accounts = make(map[string]*server.Account)
	for _, name := range []string{AccountProvisioning, AccountFleet, AccountMuster, AccountChoria, AccountSystem} {
		if a.accounts[name], err = s.LookupAccount(name); err != nil {
			return fmt.Errorf("account %s: %w", name, err)
		}
	}
	return nil
}

func (b *Broker) options(auth *authentication) (*server.Options, error) {
	opts := &server.Options{}
	var text strings.Builder
	c := &ServerConfig{MaxConnections: b.cfg.MaxConnections}
	err := serverTemplate.ExecuteTemplate(&text, "accounts", accountsData(c, 1))
	if err == nil {
		err = opts.ProcessConfigString(text.String())
	}
	if err != nil {
		return nil, fmt.Errorf("accounts: %w", err)
	}
	opts.ServerName = "muster"
	opts.Host, opts.Port, _ = splitListen(b.cfg.Listen) // checked by New
	opts.NoSigs, opts.NoLog = true, true

	opts.JetStream = true
	opts.DisableJetStreamBanner = true
	opts.StoreDir = b.cfg.StoreDir
	opts.JetStreamMaxStore = b.cfg.MaxStoreBytes
	opts.JetStreamMaxMemory = maxMemoryBytes
	opts.SyncAlways = !b.cfg.Unsynced // otherwise syncs come up to two minutes after the acknowledgement

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

func (b *Broker) tlsConfig() *tls.Config {
	return &tls.Config{
		GetCertificate: b.cfg.Certificate,
		ClientCAs:      b.cfg.ClientCAs,
		ClientAuth:     tls.VerifyClientCertIfGiven,
		MinVersion:     tls.VersionTLS12,
		Time:           b.cfg.Gate.Now,
		// A resumed session would reuse an earlier verification of the certificate.
		SessionTicketsDisabled: true,
	}
}
