// Package sdnotify speaks systemd's protocol. Without $NOTIFY_SOCKET it does nothing.
package sdnotify

import (
	"log/slog"
	"sync"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A Manager is the process's service manager.
type Manager struct {
	log     *slog.Logger
	watched bool // by a watchdog
	failed  sync.Once
}

// New reads the environment. The first failure is logged.
func New(log *slog.Logger) *Manager {
	interval, err := daemon.SdWatchdogEnabled(false)
	m := &Manager{log: log, watched: interval > 0}
	m.report(err)
	return m
}

// Ready ends the start, or Reloading.
func (m *Manager) Ready() { m.notify(daemon.SdNotifyReady) }

// Reloading lasts until Ready.
func (m *Manager) Reloading() {
	m.notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

// Stopping begins the end of the process.
func (m *Manager) Stopping() { m.notify(daemon.SdNotifyStopping) }

// Alive feeds the watchdog: call it from the loop that does the work.
func (m *Manager) Alive() {
	if m.watched {
		m.notify(daemon.SdNotifyWatchdog)
	}
}

func (m *Manager) notify(state string) {
	_, err := daemon.SdNotify(false, state)
	m.report(err)
}

func (m *Manager) report(err error) {
	if err != nil {
		m.failed.Do(func() { m.log.Warn("service manager not notified", "err", err) })
	}
}
