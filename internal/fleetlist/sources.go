package fleetlist

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// SourceKey is the place of a Source in a list: by namespace, then by name.
type SourceKey struct{ Namespace, Name string }

func sourceKeyOf(s *v1alpha1.Source) SourceKey { return SourceKey{s.Namespace, s.Name} }

func (k SourceKey) compareTo(other SourceKey) int {
	return cmp.Or(strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

// ParseSourceToken returns the key that a continue token names; the zero key for no token.
func ParseSourceToken(token string) (SourceKey, error) {
	if token == "" {
		return SourceKey{}, nil
	}
	if len(token) > MaxToken {
		return SourceKey{}, errToken
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	namespace, name, found := strings.Cut(string(text), "/")
	if err != nil || !found || namespace == "" || name == "" || len(namespace) > maxName || len(name) > maxName {
		return SourceKey{}, errToken
	}
	return SourceKey{namespace, name}, nil
}

// PageSources returns the slim Sources after a key, at most so many, and the token of the next page. The Sources are in the order
// of their keys.
func PageSources(sources []*v1alpha1.Source, after SourceKey, limit int) (page []v1alpha1.Source, next string) {
	begin, found := slices.BinarySearchFunc(sources, after, func(s *v1alpha1.Source, key SourceKey) int { return sourceKeyOf(s).compareTo(key) })
	if found {
		begin++
	}
	end := min(begin+limit, len(sources))
	page = make([]v1alpha1.Source, 0, end-begin)
	for _, s := range sources[begin:end] {
		page = append(page, SlimSource(s))
	}
	if end < len(sources) {
		last := sourceKeyOf(sources[end-1])
		next = base64.RawURLEncoding.EncodeToString([]byte(last.Namespace + "/" + last.Name))
	}
	return page, next
}
