package render

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Defaulter knows the defaults of the API that the hub serves.
type Defaulter interface {
	// Default gives obj with the API's defaults filled in; obj stays as it is. For
	// kinds without defaults, or unknown ones, it may give obj itself.
	Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// rounds after which fields whose defaults hang on each other are settled; where
// that is not enough, all doubtful fields count as stated.
const rounds = 8

// settling finds the doubtful fields that hold the API's default: what the API fills
// in again, with the same values, when they are left out.
type settling struct {
	obj      *unstructured.Unstructured
	root     *field
	defaults Defaulter
	out      map[*field]bool // left out
	tried    []trial
}

// trial is an object that was defaulted, and what came of it; neither is changed. The
// rounds come back to objects that were looked at before, and defaults are the most of
// what it costs to settle.
type trial struct{ bare, filled map[string]any }

// settle marks the fields of root that are defaulted. Defaults may hang on other
// fields (a pull policy on the image's tag, a port on the presence of a service),
// so all are left out at first, with the maps around them kept; then the rest is
// looked at again in groups that part every two fields; and what was found must
// hold at last for exactly the object that remains.
func settle(obj *unstructured.Unstructured, root *field, defaults Defaulter) error {
	doubtful := root.pairs(nil, false, nil)
	if defaults == nil || len(doubtful) == 0 {
		return nil
	}
	s := &settling{obj: obj, root: root, defaults: defaults, out: make(map[*field]bool, len(doubtful))}
	for _, p := range doubtful {
		s.out[p.field] = true
	}
	if ok, err := s.agree(true); err != nil || !ok {
		return err
	}
	if err := s.regroup(doubtful); err != nil {
		return err
	}
	ok, err := s.agree(false)
	if err != nil || !ok {
		return err
	}
	for f := range s.out {
		f.defaulted = s.out[f]
	}
	return nil
}

// agree puts fields back until all that are left out are filled in as they were:
// first what the API does not fill in at all, then what it fills in otherwise.
func (s *settling) agree(keepMaps bool) (bool, error) {
	for range rounds {
		if !anyOut(s.out) {
			return true, nil // there is nothing to fill in
		}
		filled, err := s.filled(s.out, keepMaps)
		if err != nil {
			return false, err
		}
		var absent, other []*field
		for _, p := range s.root.pairs(filled, true, nil) {
			switch {
			case !s.out[p.field]:
			case !p.there:
				absent = append(absent, p.field)
			case !equal(p.value, p.field.value):
				other = append(other, p.field)
			}
		}
		if len(absent) == 0 {
			absent = other
		}
		if len(absent) == 0 {
			return true, nil
		}
		for _, f := range absent {
			s.out[f] = false
		}
	}
	return false, nil
}

// regroup leaves the fields that were put back out once more, half of them at a
// time, so that each is looked at with every other one present.
func (s *settling) regroup(doubtful []pair) error {
	if len(doubtful) == 1 {
		return nil // it was left out alone before
	}
	var back []*field
	for _, p := range doubtful {
		if !s.out[p.field] {
			back = append(back, p.field)
		}
	}
	hits := map[*field]bool{}
	for bit := 1; bit < 2*len(back); bit *= 2 {
		for _, half := range []int{0, bit} {
			trial := maps.Clone(s.out)
			for i, f := range back {
				trial[f] = i&bit == half
			}
			if !anyOut(trial) {
				continue
			}
			filled, err := s.filled(trial, true)
			if err != nil {
				return err
			}
			for _, p := range s.root.pairs(filled, true, nil) {
				if trial[p.field] && p.there && equal(p.value, p.field.value) {
					hits[p.field] = true
				}
			}
		}
	}
	maps.Copy(s.out, hits)
	return nil
}

// anyOut tells whether a field is left out.
func anyOut(out map[*field]bool) bool {
	for _, is := range out {
		if is {
			return true
		}
	}
	return false
}

// filled gives the object without the fields in out, after defaulting.
func (s *settling) filled(out map[*field]bool, keepMaps bool) (map[string]any, error) {
	bare := &unstructured.Unstructured{Object: assemble(s.obj, s.root, emission{
		drop: func(f *field) bool { return out[f] }, keepMaps: keepMaps,
	})}
	for _, t := range s.tried {
		if equal(t.bare, bare.Object) {
			return t.filled, nil
		}
	}
	filled, err := s.defaults.Default(bare)
	if err != nil {
		return nil, fmt.Errorf("defaults: %w", err)
	}
	s.tried = append(s.tried, trial{bare.Object, filled.Object})
	return filled.Object, nil
}
