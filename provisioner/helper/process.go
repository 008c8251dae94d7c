package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// maxStderr is enough for a stack trace.
const maxStderr = 4 << 10

// drainDelay bounds the wait for child processes that hold the output open.
const drainDelay = time.Second

var errTooMuch = errors.New("too much output")

// run returns standard output, also of a program that failed by itself, and the end of standard error. It kills all
// processes of the group.
func (h *Helper) run(ctx context.Context, input []byte, args ...string) ([]byte, []byte, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.Timeout, ErrTimeout)
	defer cancel()

	stdout := &limitedBuffer{limit: maxOutput, onFull: func() { stop(errTooMuch) }}
	stderr := &tail{limit: maxStderr}
	cmd := exec.CommandContext(ctx, h.path, slices.Concat(h.cfg.Command[1:], args)...)
	cmd.Args[0] = h.cfg.Command[0]
	cmd.Env = h.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), stdout, stderr
	cmd.WaitDelay = drainDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup

	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrFailed, err)
	}
	err := cmd.Wait()
	_ = killGroup() // usually no process is left

	cause := context.Cause(ctx)
	switch {
	case stdout.over:
		return nil, stderr.b, fmt.Errorf("%w: more than %d bytes on standard output", ErrOutput, maxOutput)
	case err == nil:
		return stdout.b.Bytes(), stderr.b, nil
	case errors.Is(cause, ErrTimeout):
		return nil, stderr.b, fmt.Errorf("%w: killed after %v", ErrTimeout, h.cfg.Timeout)
	case errors.Is(cause, context.DeadlineExceeded):
		return nil, stderr.b, fmt.Errorf("%w: killed at the caller's deadline, before its own limit of %v: %w",
			ErrTimeout, h.cfg.Timeout, cause)
	case cause != nil:
		return nil, stderr.b, fmt.Errorf("%w: stopped: %w", ErrFailed, cause)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil, stderr.b, fmt.Errorf("%w: the program ended, but a child process holds its output open",
			ErrFailed)
	default:
		return stdout.b.Bytes(), stderr.b, fmt.Errorf("%w: %w", ErrFailed, err)
	}
}

// Only the copying goroutine writes to a limitedBuffer.
type limitedBuffer struct {
	b      bytes.Buffer
	limit  int
	onFull func()
	over   bool
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if !l.over && l.b.Len()+len(p) > l.limit {
		l.over = true
		l.onFull()
	}
	if !l.over {
		l.b.Write(p)
	}
	return len(p), nil
}

// A tail keeps the last limit bytes written.
type tail struct {
	b     []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if more := len(t.b) - t.limit; more > 0 {
		t.b = append(t.b[:0], t.b[more:]...)
	}
	return len(p), nil
}
