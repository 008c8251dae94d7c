package bench

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
)

// policy is what the child's nodes are decided by unless --policy names
// another: about 30 lines that look at facts, as a fleet's would.
//
//go:embed policy.rego
var policy []byte

// signerKey makes the key of the token's signer.
func signerKey(kind string) (crypto.Signer, error) {
	if kind == "ed25519" {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return rsa.GenerateKey(rand.Reader, 4096)
}

// install makes a setup in a temporary directory, as `muster provisioner init`
// would, for one token's signer and without quotas: one machine plays all nodes.
func install(cfg *Config) (_ *serving, err error) {
	s := &serving{}
	if s.dir, err = os.MkdirTemp(cfg.Dir, "muster-bench-"); err != nil {
		return nil, fmt.Errorf("%w: give a directory for it with --dir", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()
	home := s.home()
	setup := daemon.Setup{
		Name: "provisioner.bench.muster", TrustDomain: "bench.muster", Listen: "127.0.0.1:0",
		BrokerNames: []string{"localhost"}, Addresses: []string{"127.0.0.1"}, TrustFirstUse: true,
	}
	if cfg.Provisioners > 0 {
		if s.broker, err = freePort(); err != nil {
			return nil, err
		}
		setup.Cluster, setup.Replicas = "tls://"+s.broker, 1
	}
	if err := daemon.Init(home, setup); err != nil {
		return nil, err
	}
	if s.key, err = signerKey(cfg.TokenKey); err != nil {
		return nil, err
	}
	public, err := jwt.MarshalPublicKey(s.key.Public())
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(home, "signer.pem"), public, 0o644); err != nil {
		return nil, err
	}
	if err := s.installPolicy(home, cfg.Rego); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(home, "provisioner.yaml"))
	if err != nil {
		return nil, err
	}
	// All nodes come from one address here.
	quotas := []byte("\nquotas:\n  per_token: 0\n  per_source: 0\n  verifications_per_source: 0\n")
	text = bytes.Replace(text, []byte("\nquotas:\n"), quotas, 1)
	if err := os.WriteFile(filepath.Join(home, "provisioner.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	sealKey, err := os.ReadFile(filepath.Join(home, "seal.pub"))
	if err != nil {
		return nil, err
	}
	s.seal = strings.TrimSpace(string(sealKey))
	if s.pin, err = rootFingerprint(filepath.Join(home, "ca", "root.pem")); err != nil {
		return nil, err
	}
	if cfg.Provisioners > 0 {
		err = s.installExternal(cfg)
	}
	return s, err
}

// installPolicy puts the policy in place of the one of init, with its tests; nil is the
// built-in one.
func (s *serving) installPolicy(home string, text []byte) error {
	if text == nil {
		text = policy
	}
	dir := filepath.Join(home, "policy")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.rego"), text, 0o644)
}

func rootFingerprint(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return "", fmt.Errorf("%s: no PEM", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return fingerprint(c), nil
}

// token signs a token for one wave.
func (s *serving) token(cfg *Config) (string, error) {
	c := jwt.Claims{
		Token: "bench", Brokers: strings.TrimPrefix(s.url, "nats://"), Default: true, Secure: cfg.TLS, Purpose: jwt.Purpose, Subject: jwt.Purpose,
		Issuer: "muster bench", IssuedAt: time.Now().UTC(), ExpiresAt: time.Now().Add(24 * time.Hour).UTC(), JTI: jwt.NewJTI(),
	}
	limits := jwt.Limits{Uses: cfg.Uses, CA: s.pin}
	if cfg.Sealed {
		limits.Seal = s.seal
	}
	if err := c.SetLimits(limits); err != nil {
		return "", err
	}
	return jwt.Sign(s.key, c)
}

// runID is part of the names of all nodes of a wave, so that no two waves share
// any.
func runID() string {
	return strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(wire.NewID()))[:10]
}
