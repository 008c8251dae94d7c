package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// diskEvery is how often the disk is tried beside a run: seldom enough to be a
// ten-thousandth of what it does anyway.
const diskEvery = 200 * time.Millisecond

// A disk tells what a synced write costs on it, tried on a small file of our
// own beside the store. What it takes while the store writes, too, is part of
// the answer.
type disk struct {
	stop  func()
	ended chan error
	took  []time.Duration
}

// watchDisk tries the disk of dir until it is asked for the result.
func watchDisk(ctx context.Context, dir string) (*disk, error) {
	f, err := os.CreateTemp(dir, ".bench-fsync-")
	if err != nil {
		return nil, fmt.Errorf("try the disk: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	d := &disk{stop: stop, ended: make(chan error, 1)}
	go func() {
		err := d.try(ctx, f)
		d.ended <- errors.Join(err, f.Close(), os.Remove(filepath.Clean(f.Name())))
	}()
	return d, nil
}

func (d *disk) try(ctx context.Context, f *os.File) error {
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	block := make([]byte, 512) // about what a small record takes
	for {
		start := time.Now()
		if _, err := f.WriteAt(block, int64(len(d.took)%1024)*int64(len(block))); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		d.took = append(d.took, time.Since(start))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// p50 ends the trying and returns the median.
func (d *disk) p50() (time.Duration, error) {
	d.stop()
	if err := <-d.ended; err != nil {
		return 0, fmt.Errorf("try the disk: %w", err)
	}
	slices.Sort(d.took)
	return d.took[len(d.took)/2], nil
}
