package server

import (
	"context"
	"net"
	"sync"
	"time"
)

// lookupTimeout bounds the lookup of a broker's name, apart from the connection: a dead
// name server costs 5 s before the next one is asked (resolv.conf(5)), so the first two
// of three may be dead and leave a connection its whole time.
const lookupTimeout = 15 * time.Second

// beside is after how long another way to a broker is tried beside one on which nobody has
// answered yet: another address, another question for them. RFC 8305 has 250 ms, for people who wait; on a link that is slower than
// that, each node would connect to every server of a cluster behind one name. Chosen.
// Of a name with many addresses each gets less, so that the last one is tried while half of the time for
// all is left: those of one kind come first each time, and a network may have none of it.
const beside = time.Second

// lookup returns the addresses of the host in address, host:port, and the port.
func (d *dialer) lookup(ctx context.Context, address string) (hosts []string, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if hosts, err = d.lookupHost(ctx, host); err != nil {
		return nil, "", &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return hosts, port, nil
}

// lookupHost returns the addresses of a host, of both kinds. Some name servers and firewalls
// pass over questions for one kind, and the resolver waits for each of them, twice, before it
// tells of the other kind; so where both together take long, each is asked for by itself as
// well, and whatever has addresses first counts. It returns after the last lookup has ended.
func (d *dialer) lookupHost(ctx context.Context, host string) ([]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()

	type outcome struct {
		hosts []string
		err   error
	}
	both, either := make(chan outcome, 1), make(chan outcome, 2)
	asking.Go(func() {
		hosts, err := d.resolver.LookupHost(ctx, host)
		both <- outcome{hosts, err}
	})
	late := time.After(beside)
	for {
		select {
		case o := <-both:
			return o.hosts, o.err
		case o := <-either:
			if o.err == nil && len(o.hosts) > 0 {
				return o.hosts, nil
			}
		case <-late:
			for _, kind := range []string{"ip4", "ip6"} {
				asking.Go(func() {
					found, err := d.resolver.LookupIP(ctx, kind, host)
					var hosts []string
					for _, ip := range found {
						hosts = append(hosts, ip.String())
					}
					either <- outcome{hosts, err}
				})
			}
		}
	}
}

// dialAny connects to the first of the hosts that answers, in their order. The error is
// the first one's. It returns after the last attempt has ended.
func dialAny(ctx context.Context, hosts []string, port string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome)
	next := min(beside, dialTimeout/2/time.Duration(max(1, len(hosts)-1)))
	try := func(host string) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
		outcomes <- outcome{conn, err}
	}
	var found net.Conn
	var failed error
	for trying := 0; trying > 0 || len(hosts) > 0 && found == nil; {
		var late <-chan time.Time
		switch {
		case found != nil || len(hosts) == 0:
		case trying == 0:
			late = time.After(0)
		default:
			late = time.After(next)
		}
		select {
		case <-late:
			go try(hosts[0])
			hosts = hosts[1:]
			trying++
		case o := <-outcomes:
			trying--
			switch {
			case o.err != nil && failed == nil:
				failed = o.err
			case o.err != nil:
			case found == nil:
				found = o.conn
				cancel()
			default:
				_ = o.conn.Close() // both at once
			}
		}
	}
	if found == nil {
		return nil, failed
	}
	return found, nil
}
