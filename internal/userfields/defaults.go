package userfields

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Defaulter fills in the defaults of the API that the hub serves.
type Defaulter interface {
	// Default returns obj with the API's defaults filled in, and leaves obj unchanged. For kinds
	// without defaults, and for unknown kinds, it may return obj itself.
	Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// maxSettleRounds bounds the rounds that defaults need which depend on each other. After them all
// doubtful fields count as stated.
const maxSettleRounds = 8

// defaultFinder finds the doubtful fields that hold the API's default. The API fills such a field
// in again, with the same value, when the field is left out.
type defaultFinder struct {
	obj      *unstructured.Unstructured
	root     *fieldNode
	defaults Defaulter
	omitted  map[*fieldNode]bool // left out
	trials   []defaultingTrial
}

// defaultingTrial is an object before and after defaulting; both are read-only. Rounds repeat
// objects, and defaulting is the largest cost of finding defaults.
type defaultingTrial struct{ input, output map[string]any }

// markDefaultedFields marks the fields of root that hold the API's default. Defaults may depend on
// other fields, as a pull policy depends on the image's tag. So all doubtful fields are left out
// first, with the maps around them kept. Fields that come back otherwise are then tried again in
// groups that separate every two of them. The result must hold for exactly the object that remains.
func markDefaultedFields(obj *unstructured.Unstructured, root *fieldNode, defaults Defaulter) error {
	doubtful := root.pairDoubtfulFields(nil, false, nil)
	if defaults == nil || len(doubtful) == 0 {
		return nil
	}
	s := &defaultFinder{obj: obj, root: root, defaults: defaults, omitted: make(map[*fieldNode]bool, len(doubtful))}
	for _, p := range doubtful {
		s.omitted[p.fieldNode] = true
	}
	if ok, err := s.restoreFieldsUntilStable(true); err != nil || !ok {
		return err
	}
	if err := s.retryOmittingInGroups(doubtful); err != nil {
		return err
	}
	ok, err := s.restoreFieldsUntilStable(false)
	if err != nil || !ok {
		return err
	}
	for f := range s.omitted {
		f.defaulted = s.omitted[f]
	}
	return nil
}

// restoreFieldsUntilStable puts fields back until the API fills in all omitted fields as they were. It
// restores fields that the API leaves empty before fields that the API fills in otherwise.
func (s *defaultFinder) restoreFieldsUntilStable(keepMaps bool) (bool, error) {
	for range maxSettleRounds {
		if !hasOmitted(s.omitted) {
			return true, nil // there is nothing to fill in
		}
		filled, err := s.defaultWithoutFields(s.omitted, keepMaps)
		if err != nil {
			return false, err
		}
		var absent, other []*fieldNode
		for _, p := range s.root.pairDoubtfulFields(filled, true, nil) {
			switch {
			case !s.omitted[p.fieldNode]:
			case !p.isPresent:
				absent = append(absent, p.fieldNode)
			case !EqualJSON(p.otherValue, p.fieldNode.value):
				other = append(other, p.fieldNode)
			}
		}
		if len(absent) == 0 {
			absent = other
		}
		if len(absent) == 0 {
			return true, nil
		}
		for _, f := range absent {
			s.omitted[f] = false
		}
	}
	return false, nil
}

// retryOmittingInGroups omits the restored fields again, half of them at a time, so that each is tried with
// every other one present.
func (s *defaultFinder) retryOmittingInGroups(doubtful []fieldPair) error {
	if len(doubtful) == 1 {
		return nil // it was left out alone before
	}
	var back []*fieldNode
	for _, p := range doubtful {
		if !s.omitted[p.fieldNode] {
			back = append(back, p.fieldNode)
		}
	}
	hits := map[*fieldNode]bool{}
	for bit := 1; bit < 2*len(back); bit *= 2 {
		for _, half := range []int{0, bit} {
			trial := maps.Clone(s.omitted)
			for i, f := range back {
				trial[f] = i&bit == half
			}
			if !hasOmitted(trial) {
				continue
			}
			if err := s.addFieldsRestoredByDefaults(hits, trial); err != nil {
				return err
			}
		}
	}
	maps.Copy(s.omitted, hits)
	return nil
}

// addFieldsRestoredByDefaults adds to hits the omitted fields of a trial that the defaults give back.
func (s *defaultFinder) addFieldsRestoredByDefaults(hits, trial map[*fieldNode]bool) error {
	filled, err := s.defaultWithoutFields(trial, true)
	if err != nil {
		return err
	}
	for _, p := range s.root.pairDoubtfulFields(filled, true, nil) {
		if trial[p.fieldNode] && p.isPresent && EqualJSON(p.otherValue, p.fieldNode.value) {
			hits[p.fieldNode] = true
		}
	}
	return nil
}

// hasOmitted returns whether any field is left out.
func hasOmitted(out map[*fieldNode]bool) bool {
	for _, is := range out {
		if is {
			return true
		}
	}
	return false
}

// defaultWithoutFields returns the object without the fields in out, after defaulting.
func (s *defaultFinder) defaultWithoutFields(out map[*fieldNode]bool, keepMaps bool) (map[string]any, error) {
	bare := &unstructured.Unstructured{Object: assembleObject(s.obj, s.root, emitOptions{
		drop: func(f *fieldNode) bool { return out[f] }, keepMaps: keepMaps,
	})}
	for _, t := range s.trials {
		if EqualJSON(t.input, bare.Object) {
			return t.output, nil
		}
	}
	filled, err := s.defaults.Default(bare)
	if err != nil {
		return nil, fmt.Errorf("defaults: %w", err)
	}
	s.trials = append(s.trials, defaultingTrial{bare.Object, filled.Object})
	return filled.Object, nil
}
