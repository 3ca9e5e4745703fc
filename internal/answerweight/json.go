package answerweight

import "errors"

const (
	// typedElement is the memory of an element of an array that may be decoded to a struct: the
	// largest kinds of Kubernetes have about a thousand bytes, and null is such an element, too.
	typedElement = 1200
	// plainElement is the memory of an element of an array that is decoded to maps and slices, or
	// to the small structs of discovery.
	plainElement = 256
	// objectCost is the memory of an object that is decoded to a map.
	objectCost = 400
	// fieldCost is the memory of each further field of an object.
	fieldCost = 100
	// maxDepth bounds how deep JSON may be nested, as encoding/json does with 10,000.
	maxDepth = 1000
)

// ErrTooDeep is returned for JSON that is nested too deep.
var ErrTooDeep = errors.New("it is nested too deep")

// JSONScanner weighs JSON while it is read, in pieces of any size. It does not check the JSON: the
// weight of a text that is no JSON is not less than its length. Make it with NewJSONScanner.
type JSONScanner struct {
	element int // the cost of an element of an array
	arrays  []bool
	// text, escaped: the next byte is in a string, or after a backslash there.
	text, escaped bool
	weight, bytes int // of the value that has begun
	values        int // that have ended
}

// NewJSONScanner returns a scanner at the beginning of a text. typed: it may be decoded to structs
// of Kubernetes' kinds.
func NewJSONScanner(typed bool) *JSONScanner {
	if typed {
		return &JSONScanner{element: typedElement}
	}
	return &JSONScanner{element: plainElement}
}

// Scan reads the next piece of the text and returns how much heavier the text is by it. The error is
// ErrTooHeavy where one value at the top has more than maxBytes bytes or maxWeight of weight.
// Bytes between two values belong to the later value: decoders keep them until it ends.
func (s *JSONScanner) Scan(piece []byte, maxBytes, maxWeight int) (weight int, err error) {
	for _, c := range piece {
		cost, err := s.scanByte(c)
		if err != nil {
			return weight, err
		}
		weight += cost
		s.weight += cost
		s.bytes++
		if s.bytes > maxBytes || s.weight > maxWeight {
			return weight, ErrTooHeavy
		}
		if len(s.arrays) == 0 && (c == '}' || c == ']') && !s.text {
			s.weight, s.bytes = 0, 0
			s.values++
		}
	}
	return weight, nil
}

// CompletedValues returns how many values at the top have ended.
func (s *JSONScanner) CompletedValues() int { return s.values }

// scanByte returns the cost of the next byte.
func (s *JSONScanner) scanByte(c byte) (int, error) {
	if s.text {
		switch {
		case s.escaped:
			s.escaped = false
		case c == '\\':
			s.escaped = true
		case c == '"':
			s.text = false
		}
		return 1, nil
	}
	switch c {
	case '"':
		s.text = true
	case '{', '[':
		return s.openContainer(c == '[')
	case '}', ']':
		if n := len(s.arrays); n > 0 {
			s.arrays = s.arrays[:n-1]
		}
	case ',':
		if n := len(s.arrays); n > 0 && s.arrays[n-1] {
			return s.element, nil
		}
		return fieldCost, nil
	}
	return 1, nil
}

// openContainer returns the cost of a container that begins.
func (s *JSONScanner) openContainer(array bool) (int, error) {
	if len(s.arrays) >= maxDepth {
		return 0, ErrTooDeep
	}
	s.arrays = append(s.arrays, array)
	if array {
		return s.element, nil // of its first element
	}
	return objectCost, nil
}
