package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/store"
)

// kept is a keeper over a real directory, whose store and broker do as they are
// told.
type kept struct {
	*keeper
	probes, restarts     int
	probeErr, restartErr error
	reopenErr            error
	mends                bool // a restart mends the store
	reported             []provisioner.Event
	reportErr            error
	silent               atomic.Bool // the store does not answer
	others               atomic.Bool // but for the writes of nodes, which it acknowledges
	room                 int64
}

func newKept(t *testing.T) *kept {
	t.Helper()
	k := &kept{}
	k.keeper = &keeper{
		dir: t.TempDir(), alarms: provisioner.NewAlarms(provisioner.AlarmConfig{}), log: slog.New(slog.DiscardHandler), nudged: make(chan struct{}, 1),
		probe: func(ctx context.Context) error {
			k.probes++
			if k.silent.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return k.probeErr
		},
		wrote: k.others.Load,
		report: func(_ context.Context, e provisioner.Event) error {
			k.reported = append(k.reported, e)
			return k.reportErr
		},
		restart: func(context.Context) error {
			k.restarts++
			if k.restartErr == nil && k.mends {
				k.probeErr = nil
				k.silent.Store(false)
			}
			return k.restartErr
		},
		reopen: func(context.Context) error { return k.reopenErr },
	}
	return k
}

// pass has the keeper look so many times, each as long after the one before as
// [keeper.run] has it. The test must be in a bubble of synctest: nobody waits, the
// bubble's clock is what moves.
func (k *kept) pass(t *testing.T, looks int, refused bool) {
	t.Helper()
	for range looks {
		k.look(t.Context(), refused)
		time.Sleep(keepEvery) //nolint:forbidigo // moves the bubble's clock
	}
}

// stands is the cause of the alarm about the store.
func (k *kept) stands() string {
	if err := k.alarms.Stands(wire.CodeStoreUnavailable); err != nil {
		return err.Error()
	}
	return ""
}

// TestASlowStoreIsNotAway has no answer to the keeper's write for a minute, while the store
// acknowledges those of nodes: nobody is refused for it, and no broker restarted. When it
// acknowledges none of them either, it is away.
func TestASlowStoreIsNotAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		k.silent.Store(true)
		k.others.Store(true)
		k.pass(t, 10, true)
		if k.restarts > 0 || k.stands() != "" {
			t.Errorf("%d restarts, alarm %q, want neither", k.restarts, k.stands())
		}
		k.others.Store(false)
		k.pass(t, maxSilent, true)
		if k.restarts == 0 || k.stands() == "" {
			t.Errorf("%d restarts, alarm %q, want both", k.restarts, k.stands())
		}
	})
}

// TestAFullStoreIsFull has no room for the keeper's write beside acknowledged ones, which
// went before it.
func TestAFullStoreIsFull(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.others.Store(true)
	k.probeErr = fmt.Errorf("probe: %w", provisioner.ErrStoreFull)
	k.look(t.Context(), true)
	if k.alarms.Stands(wire.CodeStorageLow) == nil {
		t.Error("a store without room raises no alarm")
	}
}

func TestAStreamThatFailedIsRestartedAtOnce(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.mends = true
	k.writeFailed(errors.New("stream is broken"))
	k.look(t.Context(), true)
	if k.restarts != 1 || !strings.Contains(k.stands(), "stream is broken") {
		t.Errorf("%d restarts, alarm %q, want one and the cause", k.restarts, k.stands())
	}
	k.look(t.Context(), true)
	if k.restarts != 1 || k.stands() != "" || len(k.reported) != 2 {
		t.Errorf("%d restarts, alarm %q, %d events, want no more of the first, none of the second and two", k.restarts, k.stands(), len(k.reported))
	}
}

// TestAServerThatFailsAsItStarts says so once, and that is not taken for the last
// word of the server before it.
func TestAServerThatFailsAsItStarts(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	restart := k.restart
	k.restart = func(ctx context.Context) error {
		err := restart(ctx)
		if k.restarts == 1 {
			k.writeFailed(errors.New("stream is broken again"))
		}
		return err
	}
	k.writeFailed(errors.New("stream is broken"))
	k.look(t.Context(), true)
	k.look(t.Context(), true)
	if k.stands() == "" || k.storeBroken() == nil {
		t.Errorf("alarm %q, broken %v, want what the new server said", k.stands(), k.storeBroken())
	}
	k.restarted = time.Now().Add(-time.Hour)
	k.look(t.Context(), true)
	k.look(t.Context(), true)
	if k.restarts != 2 || k.stands() != "" || k.storeBroken() != nil {
		t.Errorf("%d restarts, alarm %q, broken %v, want two and nothing", k.restarts, k.stands(), k.storeBroken())
	}
}

// TestAStoreThatOnlyTakesItsTime is no reason to drop the fleet.
func TestAStoreThatOnlyTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		k.silent.Store(true)
		for range maxSilent - 1 {
			k.look(t.Context(), true)
		}
		if k.restarts != 0 || !strings.Contains(k.stands(), "no answer") {
			t.Errorf("%d restarts, alarm %q, want none yet", k.restarts, k.stands())
		}
		k.silent.Store(false)
		k.look(t.Context(), false)
		if k.stands() != "" || k.silentProbes() != 0 {
			t.Errorf("alarm %q, want none", k.stands())
		}
		k.silent.Store(true)
		k.mends = true
		for range maxSilent {
			k.look(t.Context(), true)
		}
		if k.restarts != 1 {
			t.Errorf("%d restarts of a store that is silent for good, want one", k.restarts)
		}
	})
}

func (k *kept) silentProbes() int { return k.keeper.silent }

// TestRestartsThatDoNotHelp are further and further apart.
func TestRestartsThatDoNotHelp(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*kept){
		"the broker does not start": func(k *kept) { k.restartErr = errors.New("port in use") },
		"it is another store":       func(k *kept) { k.reopenErr = errors.New("another installation") },
		"the store stays as it was": func(k *kept) { k.probeErr = errors.New("no answer") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t)
				k.probeErr = errors.New("silence")
				edit(k)
				k.writeFailed(errors.New("stream is broken"))
				k.pass(t, 600, false)
				if k.restarts < 8 || k.restarts > 20 {
					t.Errorf("%d restarts in ten minutes, want them to become rare and not to end", k.restarts)
				}
				if k.stands() == "" {
					t.Error("no alarm")
				}
				k.probeErr, k.restartErr, k.reopenErr = nil, nil, nil
				k.pass(t, 120, false)
				if k.stands() != "" {
					t.Errorf("alarm %q although everything works again", k.stands())
				}
			})
		})
	}
}

// TestAServerThatDoesNotEnd ends the process: a new one serves, and this one never will. Not so
// while anything else is what keeps the broker away.
func TestAServerThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		restart := k.restart
		k.restart = func(ctx context.Context) error {
			k.restartErr = fmt.Errorf("restart broker: %w", broker.ErrHangs)
			if k.restarts == maxHung-1 {
				k.restartErr = errors.New("port in use")
			}
			return restart(ctx)
		}
		k.writeFailed(errors.New("stream is broken"))
		if err := k.run(t.Context()); !errors.Is(err, broker.ErrHangs) {
			t.Errorf("run = %v, want %v", err, broker.ErrHangs)
		}
		if want := 2 * maxHung; k.restarts != want {
			t.Errorf("%d restarts, want %d: those before the port was in use do not count", k.restarts, want)
		}
	})
}

// TestAStoreWithoutItsEnd ends the process: only the next start puts back what is in the
// journal. Who is well otherwise stays, whatever else the store is.
func TestAStoreWithoutItsEnd(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("store: %w", store.ErrShorter)
	for name, tt := range map[string]struct {
		edit func(*kept)
		ends bool
	}{
		"after a restart": {func(k *kept) { k.reopenErr, k.mends = lost, true; k.writeFailed(errors.New("stream is broken")) }, true},
		"another's, after a probe failed": {func(k *kept) {
			k.restart, k.reopenErr, k.keeper.silent = nil, lost, 1
		}, true},
		"another's, that was away for less than a probe": {func(k *kept) {
			k.restart, k.reopenErr, k.returns = nil, lost, func() uint64 { return 1 }
		}, true},
		"another's, that was not away": {func(k *kept) {
			k.restart, k.reopenErr, k.returns = nil, lost, func() uint64 { return 0 }
		}, false},
		"another installation": {func(k *kept) {
			k.restart, k.reopenErr, k.returns = nil, store.ErrInstallation, func() uint64 { return 1 }
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKept(t)
				tt.edit(k)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := k.run(ctx); errors.Is(err, store.ErrShorter) != tt.ends {
					t.Errorf("run = %v, want it to end for that: %v", err, tt.ends)
				}
			})
		})
	}
}

// TestAStoreThatIsNotOpenAgainAtOnce is asked again at the next look.
func TestAStoreThatIsNotOpenAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		k.restart, k.returns, k.reopenErr = nil, func() uint64 { return 1 }, errors.New("no leader yet")
		k.pass(t, 1, false)
		if k.stands() == "" {
			t.Error("no alarm while nobody knows whether the store is ours")
		}
		k.reopenErr = nil
		k.pass(t, 2, false)
		if k.stands() != "" {
			t.Errorf("the alarm stands: %s", k.stands())
		}
	})
}

// TestADiskThatHangs has JetStream answer nothing, not even what it has stored, and holds
// whoever asks. That raises the alarm and keeps nobody from stopping; all is well when it answers.
func TestADiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t)
		thawed := make(chan struct{})
		var asked, probed atomic.Int64
		k.usage = func() (broker.Usage, error) {
			asked.Add(1)
			<-thawed
			return broker.Usage{Limit: 1 << 30}, nil
		}
		k.probe = func(ctx context.Context) error {
			probed.Add(1)
			<-thawed
			return ctx.Err()
		}
		k.setRoom = func(bytes int64) { k.room = bytes }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- k.run(ctx) }()
		time.Sleep(2 * probeEvery) //nolint:forbidigo // moves the bubble's clock
		if k.stands() == "" {
			t.Error("no alarm")
		}
		stop()
		synctest.Wait()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("run = %v", err)
			}
		default:
			t.Error("the keeper does not end")
		}
		if n, m := asked.Load(), probed.Load(); n != 1 || m != 1 {
			t.Errorf("asked %d times what is stored and probed %d times, want no more while the first is not answered", n, m)
		}
		close(thawed)
		k.pass(t, 5, false)
		if k.room == 0 || k.stands() != "" {
			t.Errorf("room for %d, alarm %q, want to know and none", k.room, k.stands())
		}
	})
}

// TestADiskThatIsNotThere is waited for: a restart would gain nothing.
func TestADiskThatIsNotThere(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.dir += "/gone"
	k.probeErr = errors.New("silence")
	k.writeFailed(errors.New("stream is broken"))
	for range 5 {
		k.look(t.Context(), true)
	}
	if k.restarts != 0 || !strings.Contains(k.stands(), "gone") {
		t.Errorf("%d restarts, alarm %q, want none and the directory", k.restarts, k.stands())
	}
}

// TestEventsOfAlarmsWaitForTheStore keeps them while the store takes none.
func TestEventsOfAlarmsWaitForTheStore(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.watched = map[wire.Code]func() error{wire.CodeAuthorityExpired: func() error { return errors.New("at its end") }}
	k.reportErr = errors.New("not now")
	k.look(t.Context(), true)
	k.reportErr, k.reported = nil, nil
	k.watched[wire.CodeAuthorityExpired] = func() error { return nil }
	k.look(t.Context(), true)
	if len(k.reported) != 2 || k.reported[0].Type != provisioner.EventAlarmRaised || k.reported[1].Type != provisioner.EventAlarmCleared {
		t.Errorf("reported %v, want raised and cleared", k.reported)
	}
}

func TestParseBytes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]size{
		"": 0, "0": 0, "4096": 4096, "1KiB": 1 << 10, "512MiB": 512 << 20, "512 MiB": 512 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"8388607TiB": 8388607 << 40,
		"MiB":        -1, "-1": -1, "1.5GiB": -1, "1MB": -1, "1m": -1, "8388608TiB": -1, "9223372036854775808": -1, "1MiB MiB": -1,
	} {
		b, err := parseBytes(text)
		if err == nil && b != want || (err != nil) != (want < 0) {
			t.Errorf("%q = %d, %v, want %d", text, b, err, want)
		}
	}
}

func TestLowWater(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		configured size
		total      int64
		want       int64
	}{
		"a large disk": {0, 4 << 40, maxLowWater},
		"a small disk": {0, 1 << 30, (1 << 30) / 20},
		"as said":      {7, 4 << 40, 7},
	} {
		if got := lowWater(tt.configured, space{total: tt.total}); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestStorageAlarmHasTwoMarks: what is enough to go on is not enough to begin
// again.
func TestStorageAlarmHasTwoMarks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := spaceOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	mark := size(s.free / 11 * 10) // a tenth more than this is free, a quarter more is not
	if err := checkStorage(dir, s, mark, false); err != nil {
		t.Errorf("above the mark: %v", err)
	}
	if err := checkStorage(dir, s, mark, true); err == nil {
		t.Error("an alarm ends although less than a quarter above the mark is free")
	}
	if err := checkStorage(dir, s, mark/2, true); err != nil {
		t.Errorf("far above the mark: %v", err)
	}
	if err := checkStorage(dir, s, mark*2, false); err == nil {
		t.Error("below the mark: no alarm")
	}
}
