package objectdiff

import "reflect"

// MergePatch returns the JSON merge patch (RFC 7386) from one object to a second one without null fields: new maps, with values of
// the second object. Whole numbers beyond 2^53 are exact. Lists are replaced as a whole.
func MergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, has := to[name]; !has {
			patch[name] = nil
		}
	}
	for name, after := range to {
		before, had := from[name]
		x, isMap := before.(map[string]any)
		y, becomesMap := after.(map[string]any)
		switch {
		case isMap && becomesMap: // each value is compared once, however deep it is
			if below := MergePatch(x, y); len(below) > 0 {
				patch[name] = below
			}
		case had && reflect.DeepEqual(before, after):
		default:
			patch[name] = after
		}
	}
	return patch
}
