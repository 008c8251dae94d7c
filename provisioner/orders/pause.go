package orders

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/jwt"
	"muster/provisioner/trust"
)

// PauseSchema is the version of the JSON form.
const PauseSchema = 1

// A Pause stops enrollment until another order ends it. The last one about a site counts.
type Pause struct {
	Schema   int       `json:"schema"`
	Site     jwt.Site  `json:"site,omitempty"`     // empty: the whole installation
	Renewals bool      `json:"renewals,omitempty"` // renewals too
	Resumed  bool      `json:"resumed,omitempty"`  // ended
	At       time.Time `json:"at"`                 // UTC, in seconds
	trust.Cause
}

// Check returns what is invalid.
func (s *Pause) Check() error {
	if s.Schema != PauseSchema {
		return fmt.Errorf("pause: schema %d, want %d", s.Schema, PauseSchema)
	}
	if s.Site != "" {
		if _, err := jwt.ParseSite(string(s.Site)); err != nil {
			return fmt.Errorf("pause: %w", err)
		}
	}
	return nil
}

// Scope says where.
func (s *Pause) Scope() string {
	if s.Site == "" {
		return "everywhere"
	}
	return fmt.Sprintf("at site %q", s.Site)
}

// Because returns the cause of a refusal, for operators.
func (s *Pause) Because() error {
	what := ""
	if s.Renewals {
		what = ", renewals too,"
	}
	return fmt.Errorf("paused %s%s by %s since %s%s", s.Scope(), what, s.By, s.At.Format(time.RFC3339),
		because(s.Cause))
}

func because(c trust.Cause) string {
	if c.Why == "" {
		return ""
	}
	return ": " + c.Why
}

// LogKey is the pause's key in the log.
func (s *Pause) LogKey() string { return pauseKey(s.Site) }

// A site may have characters that are invalid in a subject.
const (
	pauseAll    = "all"
	pauseAtSite = "site-" // then the site in hex
)

func pauseKey(site jwt.Site) string {
	if site == "" {
		return pauseAll
	}
	return pauseAtSite + hex.EncodeToString([]byte(site))
}

// pausedBy returns nil for an ended pause. An unreadable one pauses its site.
func pausedBy(key string, e trust.Entry[*Pause]) *Pause {
	switch {
	case e.Unread == nil && e.Value.Resumed:
		return nil
	case e.Unread == nil:
		return e.Value
	}
	site, _ := hex.DecodeString(strings.TrimPrefix(key, pauseAtSite))
	if key == pauseAll {
		site = nil
	}
	return &Pause{
		Schema: PauseSchema,
		Site:   jwt.Site(site),
		At:     e.At.UTC().Truncate(time.Second),
		Cause:  trust.CauseUnread,
	}
}

// Pauses is this process's view of pauses.
type Pauses struct{ trust.Log[*Pause] }

// Of returns the pause of exactly this site ("" is the installation), or nil.
func (ps Pauses) Of(site jwt.Site) *Pause {
	key := pauseKey(site)
	e, found := ps.Get(key)
	if !found {
		return nil
	}
	return pausedBy(key, e)
}

// About returns a pause that covers one of the sites, or nil.
func (ps Pauses) About(renewal bool, sites ...jwt.Site) *Pause {
	for _, site := range append([]jwt.Site{""}, sites...) {
		if s := ps.Of(site); s != nil && (s.Renewals || !renewal) {
			return s
		}
	}
	return nil
}

// List returns the pauses in force, the installation's first, then by site.
func (ps Pauses) List() []*Pause {
	list := []*Pause{}
	for key, e := range ps.All() {
		if s := pausedBy(key, e); s != nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Pause) int { return cmp.Compare(a.Site, b.Site) })
	return list
}
