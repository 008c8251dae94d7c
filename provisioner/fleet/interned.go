package fleet

// interned numbers values that many nodes share, so that a node holds numbers instead of pointers. Unused values are
// dropped. Make one with newInterned.
type interned[T comparable] struct {
	numbers map[T]uint32
	values  []T // by number; 0 is the zero value
	uses    []int
	free    []uint32 // numbers of dropped values
}

func newInterned[T comparable]() interned[T] {
	return interned[T]{numbers: make(map[T]uint32), values: make([]T, 1), uses: make([]int, 1)}
}

// set replaces a node's number by the number of v.
func (t *interned[T]) set(number *uint32, v T) {
	n, known := t.numbers[v]
	if !known {
		n = t.add(v)
	}
	t.uses[n]++
	old := *number
	*number = n
	if old == 0 {
		return
	}
	if t.uses[old]--; t.uses[old] == 0 {
		delete(t.numbers, t.values[old])
		clear(t.values[old : old+1])
		t.free = append(t.free, old)
	}
}

func (t *interned[T]) add(v T) (n uint32) {
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.values[n] = v
	} else {
		n = uint32(len(t.values))
		t.values, t.uses = append(t.values, v), append(t.uses, 0)
	}
	t.numbers[v] = n
	return n
}
