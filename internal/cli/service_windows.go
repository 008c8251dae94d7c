package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
)

// asService runs a verb, as a service if the program was started as one. An error ends it with status 1, so that its
// recovery actions apply.
func asService(ctx context.Context, name string, run func(context.Context) error) error {
	if managed, err := svc.IsWindowsService(); err != nil || !managed {
		return run(ctx)
	}
	s := &service{ctx: ctx, run: run}
	if err := svc.Run(name, s); err != nil {
		s.err = err
	}
	if s.err != nil {
		_, _ = io.WriteString(LogWriter(), s.err.Error())
	}
	return s.err
}

type service struct {
	ctx context.Context
	run func(context.Context) error
	err error
}

// Execute implements [svc.Handler].
func (s *service) Execute(_ []string, orders <-chan svc.ChangeRequest, states chan<- svc.Status) (bool, uint32) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	states <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case s.err = <-ended:
			states <- svc.Status{State: svc.StopPending}
			if s.err != nil {
				return true, ExitFailed
			}
			return false, 0
		case order := <-orders:
			switch order.Cmd {
			case svc.Interrogate:
				states <- order.CurrentStatus
			case svc.Stop, svc.Shutdown:
				states <- svc.Status{State: svc.StopPending}
				cancel()
			}
		}
	}
}

// LogWriter returns standard error; for a service, the event log.
func LogWriter() io.Writer {
	if managed, err := svc.IsWindowsService(); err != nil || !managed {
		return os.Stderr
	}
	program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	// It fails if the source is registered already.
	_ = eventlog.InstallAsEventCreate(program, eventlog.Info|eventlog.Warning|eventlog.Error)
	log, err := eventlog.Open(program)
	if err != nil {
		return os.Stderr
	}
	return events{log}
}

type events struct{ log *eventlog.Log }

func (e events) Write(line []byte) (int, error) {
	const id = 1
	text := string(line)
	switch {
	case bytes.Contains(line, []byte("level=ERROR")), bytes.Contains(line, []byte(`"level":"ERROR"`)):
		return len(line), e.log.Error(id, text)
	case bytes.Contains(line, []byte("level=WARN")), bytes.Contains(line, []byte(`"level":"WARN"`)):
		return len(line), e.log.Warning(id, text)
	}
	return len(line), e.log.Info(id, text)
}
