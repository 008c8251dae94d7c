// Package server is the agent on a node, as Choria's server is: it decides
// whether the node has to be provisioned, enrolls it with the token that lies
// on its image, puts the certificate and the configuration it gets on disk, all
// or nothing, and then keeps a mutually authenticated connection to the fleet
// over which it reports that the node is alive.
//
// Callers are the commands ([New], then [Server.Run]), `muster demo`, which
// runs hundreds of agents in one process, and the doctor ([Doctor]) and
// buildinfo ([ReadSettings]) verbs, which only look.
//
// # Trust
//
// The node does not verify its token; that is the provisioner's to do. What
// the token says is believed as far as whoever can write the image is
// believed: where the brokers are, and which authority to expect. A reply is
// believed if it repeats the request's random id and if the certificate in it
// is for this node's key and name, under the pinned authority where the token
// pins one. In plain mode, without a pin, that is as much as Choria's nodes
// can know; a listener in the middle can do better than us. See docs/threats.md.
//
// The private key is made here, is written with mode 0600 and goes nowhere.
//
// # Files
//
// Everything that belongs together lies in one directory, and changes by one
// rename(2); apply.go has the argument. Beside the directory (say ssl) lie
// .ssl.next, the next set while it is being made, .ssl.lock, which keeps a
// second agent out, .ssl.clock, the latest time seen, and, while the node is not
// enrolled, .ssl.last, why the last attempt failed.
package server
