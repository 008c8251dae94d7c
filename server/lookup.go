package server

import (
	"context"
	"net"
	"time"
)

// lookupTimeout bounds the lookup of a broker's name, apart from the connection: a dead
// name server costs 5 s before the next one is asked (resolv.conf(5)), so the first two
// of three may be dead and leave a connection its whole time.
const lookupTimeout = 15 * time.Second

// beside is after how long another address of a broker is tried beside one that has not
// answered yet. RFC 8305 has 250 ms, for people who wait; on a link that is slower than
// that, each node would connect to every server of a cluster behind one name. Chosen.
const beside = time.Second

// lookup returns the addresses of the host in address, host:port, and the port.
func (d *dialer) lookup(ctx context.Context, address string) (hosts []string, port string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if hosts, err = d.resolver.LookupHost(ctx, host); err != nil {
		return nil, "", &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return hosts, port, nil
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
			late = time.After(beside)
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
