package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"muster/internal/inputfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
	"muster/server/trust"
)

// Kinds of faults: they begin the text of a fault.
const (
	faultClock   = "clock"
	faultDisk    = "disk"
	faultFacts   = "facts"
	faultFiles   = "files"
	faultRenewal = "renewal"
)

// faults are what keeps a connected agent from renewing as it should, by kind. Every lifecycle event has them, and a
// change is published at once. A lost event is harmless: the next one says the same.
type faults struct {
	active    map[string]string
	published string
}

func (f *faults) set(kind string, err error) {
	if err == nil {
		delete(f.active, kind)
		return
	}
	if f.active == nil {
		f.active = make(map[string]string)
	}
	text := kind + ": " + link.OneLine(err).Error()
	if summarize(text) != summarize(f.active[kind]) {
		f.active[kind] = text
	}
}

// String returns all faults in one line, or "".
func (f *faults) String() string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(f.active)) {
		all = append(all, f.active[kind])
	}
	return strings.Join(all, "; ")
}

// probeEvery is the interval of writing to the disk, in intervals of [Config.WatchInterval]: by default a minute.
const probeEvery = 30

func (m *member) checkHealth(ctx context.Context) {
	if now := time.Now(); !now.Before(m.nextProbe) {
		m.nextProbe = now.Add(probeEvery * m.cfg.WatchInterval)
		err := cmp.Or(m.sets.dir.Writable(), adviseOccupied(m.sets.dir.Check()))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // reported as lost files
		}
		m.report(ctx, slog.LevelError, faultDisk, msgDisk, link.Explain(err, link.Peer{}))
	}
	m.checkFacts()
}

// checkFacts also has facts sent that an earlier request lacked. A missing file is a fault only if there was one.
func (m *member) checkFacts() {
	file := m.cfg.factsFile(m.token, m.conf)
	if file == "" || m.facts.paths != nil && !m.facts.changed() {
		return
	}
	m.facts = watch(file)
	_, err := readFacts(file)
	if errors.Is(err, ErrMissing) && m.sets.formerFacts() == nil {
		err = nil
	} else if err == nil {
		m.factsDue = m.sets.missedFacts()
	}
	m.faults.set(faultFacts, err)
}

func (a *agent) report(ctx context.Context, level slog.Level, kind, message string, err error) {
	a.faults.set(kind, err)
	if err == nil {
		a.problems.solved(message)
		return
	}
	a.problems.problem(ctx, level, message, err)
}

func (m *member) publishFaults(ctx context.Context, conn *link.Conn) {
	if text := m.faults.String(); text != m.faults.published && !m.renewal.unrecorded {
		m.faults.published = text
		m.publishEvent(ctx, conn, lifecycleAlive, m.inspection)
	}
}

// damage returns why a connected agent does not use the files on disk: it stays with those that it has read, since the
// connection works. Lost files come back with a renewal over it. It returns nil if the agent must read the files.
func (m *member) damage(v *inspection) error {
	if v.mode != ModeProvisioning || v.Provision.Yes || v.ProvisionOrdered || v.identity != m.identity {
		return nil
	}
	m.renewal.repair = errors.Is(v.Conf, ErrMissing) || v.Credentials != nil
	why := v.missing()
	if m.renewal.repair {
		return advice.New(why, "nothing: the agent renews over its connection, which replaces the files")
	}
	return advice.New(why, "correct the file; the agent stays in the fleet with what it read before, "+
		"until it is started again")
}

// tryBrokers returns why a connected agent does not move to the brokers that a person wrote into server.conf: none
// admits it. It tries them once for each version of the files, and again each minute.
func (m *member) tryBrokers(ctx context.Context, v *inspection) error {
	if v.mode != ModeNormal || v.creds.Serial != m.creds.Serial {
		return nil
	}
	urls, srv := v.fleetBrokers()
	was, wasSRV := m.fleetBrokers()
	pushed, err := m.sets.pending() // a set is confirmed over its own brokers
	if pushed != nil || err != nil || srv == wasSRV && slices.Equal(urls, was) {
		return nil
	}
	if v.watched.seen == m.tried.seen && time.Now().Before(m.nextTry) {
		return m.unreached
	}
	conn, err := m.connectFleet(ctx, v)
	if err == nil {
		conn.End()
		return nil
	}
	m.tried, m.nextTry = v.watched, time.Now().Add(probeEvery*m.cfg.WatchInterval)
	m.unreached = advice.New(fmt.Errorf("brokers of server.conf: %w", err),
		"correct brokers in server.conf; the agent stays connected to its present broker as long as that is there")
	return m.unreached
}

// clockFault is about a machine's clock that is beyond the end of a certificate that the broker still admits.
func (m *member) clockFault() error {
	end := m.creds.Leaf().NotAfter
	now := m.clock.at(m.creds.Leaf().NotBefore)
	if now.Before(end) {
		return nil
	}
	return advice.Errorf("correct this machine's clock", "by this machine's clock the certificate ended %s ago, "+
		"but the broker still admits it", span.Format(now.Sub(end).Truncate(time.Hour)))
}

// renewalFault returns err if operators must hear of it: a fault of the machine, a final refusal, or any failure when
// less than a sixth of the certificate's life is left. A provisioner knows of its other refusals.
func (r *renewal) renewalFault(err error) error {
	var remote link.Unanswered
	var refused link.Refusal
	leaf := r.creds.Leaf()
	start, life := trust.LifeOf(leaf)
	switch {
	case r.clock.at(leaf.NotBefore).After(start.Add(life * 5 / 6)):
	case errors.As(err, &refused) && wire.MeaningOf(refused.Code).Retry, errors.As(err, &remote):
		return nil
	}
	return err
}

// missedFacts reports whether the request for the set in force lacked the machine's facts.
func (s *sets) missedFacts() bool {
	_, err := os.Lstat(s.dir.Path(factsErrorName))
	return err == nil
}

// formerFacts returns the facts in the request for the set in force, or nil.
func (s *sets) formerFacts() []byte {
	b, _ := inputfile.Read(s.dir.Path(factsName), inputfile.Configured, wire.MaxFactsBytes)
	return b
}

func boundedProblem(err error) string {
	text := fmt.Sprint(link.OneLine(err))
	return strings.ToValidUTF8(text[:min(len(text), wire.MaxFactsError)], "")
}
