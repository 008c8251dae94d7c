// Command wave enrolls simulated nodes and says how fast that went.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/internal/simnode"
)

func main() {
	urls := flag.String("urls", "", "servers, comma separated; each node takes another one")
	token := flag.String("token", "", "file of the provisioning token")
	nodes := flag.Int("nodes", 1000, "how many nodes")
	concurrency := flag.Int("concurrency", 64, "how many at once")
	patience := flag.Duration("patience", 5*time.Minute, "when to give up")
	flag.Parse()
	if err := run(strings.Split(*urls, ","), *token, *nodes, *concurrency, *patience); err != nil {
		fmt.Fprintln(os.Stderr, "wave:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(urls []string, file string, nodes, concurrency int, patience time.Duration) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	made := make([]*simnode.Node, nodes)
	for i := range made {
		if made[i], err = simnode.New(fmt.Sprintf("node%06d.example.net", i), strings.TrimSpace(string(text))); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var next, tries atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for range concurrency {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < nodes && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				for try := 0; ctx.Err() == nil; try++ {
					tries.Add(1)
					if provision(ctx, urls[(i+try)%len(urls)], made[i]) == nil {
						break
					}
					wait(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("not all of %d nodes are provisioned after %v", nodes, patience)
	}
	took := time.Since(start)
	_, err = fmt.Fprintf(os.Stdout, "%d nodes provisioned in %v, %.0f a minute, in %d tries\n",
		nodes, took.Round(time.Millisecond), float64(nodes)/took.Minutes(), tries.Load())
	return err
}

// provision enrolls a node over a connection of its own and confirms.
func provision(ctx context.Context, url string, n *simnode.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second) // a cluster that lost its leader takes 4 to 9 s
	defer cancel()
	nc, err := simnode.Dial(url, n.Token)
	if err != nil {
		return err
	}
	defer nc.Close()
	r, err := simnode.Enroll(ctx, nc, n.Request())
	if err != nil {
		return err
	}
	if r.Refusal != nil {
		return errors.New(string(r.Refusal.Code))
	}
	a, err := n.Confirm(r.Enrolled)
	if err != nil {
		return err
	}
	if r, err = simnode.Apply(ctx, nc, a); err != nil {
		return err
	}
	if r.Refusal != nil {
		return errors.New(string(r.Refusal.Code))
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
