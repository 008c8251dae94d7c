// Package attacks holds what has been tried on muster from outside: forged tokens, hostile requests and names, foreign
// subjects, men in the middle, floods, damaged stores, odd files and forms of other sites. Its tests speak to real
// processes over real sockets. `make attacks` runs it.
package attacks
