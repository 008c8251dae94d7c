package demo

import (
	"crypto"
	"crypto/rand"
	"os"
	"path/filepath"
	"time"

	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/jwt"
)

// The tokens of a fleet that stays; each is in a file of this name.
const (
	tokenSite    = "fleet-" + site
	tokenAny     = "fleet"
	tokenLimited = "kiosk"
	tokenExpired = "last-week"
	tokenForeign = "fra2"
	tokenStolen  = "stolen" // not sealed
)

// claims are those of a token for everybody of an installation, for a day, and its
// limits.
func claims(d *daemon.Daemon) (jwt.Claims, jwt.Limits) {
	now := time.Now().UTC().Truncate(time.Second)
	return jwt.Claims{
		Token: wire.Secret(rand.Text()), Brokers: urlOf(d), Default: true, Organization: jwt.DefaultOrganization,
		Purpose: jwt.Purpose, Subject: jwt.Purpose, Issuer: "muster demo", JTI: jwt.NewJTI(),
		IssuedAt: now, NotBefore: now, ExpiresAt: now.Add(24 * time.Hour),
	}, jwt.Limits{CA: d.CAFingerprint(), Seal: d.SealKey()}
}

func signed(key crypto.Signer, c jwt.Claims, l jwt.Limits) (string, error) {
	if err := c.SetLimits(l); err != nil {
		return "", err
	}
	return jwt.Sign(key, c)
}

// stays is how long tokens of a fleet that stays are good.
const stays = 30 * 24 * time.Hour

// signTokens writes the tokens of the fleet.
func (s *stay) signTokens() error {
	for name, edit := range map[string]func(*jwt.Claims, *jwt.Limits){
		tokenAny:  func(*jwt.Claims, *jwt.Limits) {},
		tokenSite: func(_ *jwt.Claims, l *jwt.Limits) { l.Site = site },
		tokenLimited: func(_ *jwt.Claims, l *jwt.Limits) {
			l.Site, l.Uses, l.Identities = site, uses(s.cfg.Nodes), []wire.Pattern{wire.Pattern("kiosk*." + site + "." + domain)}
		},
		tokenExpired: func(c *jwt.Claims, _ *jwt.Limits) {
			c.IssuedAt, c.NotBefore = c.IssuedAt.Add(-14*24*time.Hour), c.NotBefore.Add(-14*24*time.Hour)
			c.ExpiresAt = c.NotBefore.Add(7 * 24 * time.Hour)
		},
		tokenForeign: func(_ *jwt.Claims, l *jwt.Limits) { l.Site = "fra2" },
		tokenStolen:  func(_ *jwt.Claims, l *jwt.Limits) { l.Seal = "" },
	} {
		c, l := claims(s.daemon)
		c.ExpiresAt = c.IssuedAt.Add(stays)
		edit(&c, &l)
		text, err := signed(s.key, c, l)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.tokenFile(name), []byte(text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *stay) tokenFile(name string) string { return filepath.Join(s.cfg.Dir, "tokens", name+".jwt") }

// url is the broker as tokens name it.
func (s *stay) url() string { return urlOf(s.daemon) }
