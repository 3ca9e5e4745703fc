package store

import "fmt"

// In push mode the hub reads the state of members that may be hostile. An agent in its memory limit of
// 256 MiB cannot store as much as these bounds let through.
const (
	// maxValue bounds a stored value, packed and plain, in bytes.
	maxValue = 128 << 20
	// maxPacked bounds all Secrets of the state, in bytes, and maxDecoded the memory that their
	// values take.
	maxPacked  = 256 << 20
	maxDecoded = 512 << 20
	// secretCost is what a Secret takes beside its bytes.
	secretCost = 1 << 10
	// valueCost is what a container, an element of an array or a null takes that is decoded to one of the
	// agent's types, and fieldCost a further field of an object. These types end at typedDepth: below that
	// are users' objects, which stay bytes.
	valueCost  = 400
	fieldCost  = 100
	typedDepth = 5
)

var (
	// errTooLarge: no agent stores so much in one value.
	errTooLarge = fmt.Errorf("has more than %d bytes", maxValue)
	// errTooMuch: no agent stores so much in all.
	errTooMuch = fmt.Errorf("it takes more than %d MiB with what was read before", maxDecoded>>20)
)

// weighValue returns about how much memory a value takes when it is decoded, in bytes. A text that is
// no JSON has a weight, too.
func weighValue(plain []byte) int {
	weight, depth := len(plain), 0
	var arrays [typedDepth + 1]bool
	text, escaped := false, false
	for _, c := range plain {
		switch {
		case escaped:
			escaped = false
		case text:
			escaped, text = c == '\\', c != '"'
		case c == '"':
			text = true
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		case c == '{' || c == '[':
			if depth++; depth <= typedDepth {
				weight += valueCost
				arrays[depth] = c == '['
			}
		case depth <= typedDepth:
			weight += weighToken(c, arrays[depth])
		}
	}
	return weight
}

// weighToken returns the weight of what begins with c, in an array or in an object.
func weighToken(c byte, array bool) int {
	switch {
	case c == 'n', c == ',' && array:
		return valueCost
	case c == ',':
		return fieldCost
	}
	return 0
}

// memoryAllowance is the memory that values may still take, in bytes.
type memoryAllowance int

// chargeValue takes the memory of a value; nothing where it does not suffice.
func (a *memoryAllowance) chargeValue(plain []byte) error {
	weight := memoryAllowance(weighValue(plain))
	if weight > *a {
		return errTooMuch
	}
	*a -= weight
	return nil
}
