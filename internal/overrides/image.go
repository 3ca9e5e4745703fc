package overrides

import (
	"fmt"
	"regexp"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// imageReference is an image reference in its parts: registry/repository:tag@digest. Only the
// repository is required.
type imageReference struct{ registry, repository, tag, digest string }

var (
	registryPattern   = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)(:[0-9]{1,5})?$`)
	repositoryPattern = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagPattern        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestPattern     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
)

// parseImage splits an image reference. The first part of a path is a registry when it has a dot or
// a port, or is localhost. Such a part cannot belong to a repository on the default registry.
func parseImage(ref string) (imageReference, error) {
	var im imageReference
	rest, digest, hasDigest := strings.Cut(ref, "@")
	if hasDigest && !digestPattern.MatchString(digest) {
		return im, fmt.Errorf("%q is not an image: %q is not a digest", ref, digest)
	}
	im.digest = digest
	if slash, colon := strings.LastIndexByte(rest, '/'), strings.LastIndexByte(rest, ':'); colon > slash {
		im.tag = rest[colon+1:]
		if !tagPattern.MatchString(im.tag) {
			return im, fmt.Errorf("%q is not an image: %q is not a tag", ref, im.tag)
		}
		rest = rest[:colon]
	}
	if first, path, ok := strings.Cut(rest, "/"); ok && isRegistry(first) {
		im.registry, rest = first, path
		if !registryPattern.MatchString(first) {
			return im, fmt.Errorf("%q is not an image: %q is not a registry", ref, first)
		}
	}
	im.repository = rest
	if !repositoryPattern.MatchString(rest) {
		return im, fmt.Errorf("%q is not an image: %q is not a repository", ref, rest)
	}
	return im, nil
}

func isRegistry(s string) bool {
	return s == "localhost" || strings.ContainsAny(s, ".:") || strings.ToLower(s) != s
}

func (im imageReference) String() string {
	s := im.repository
	if im.registry != "" {
		s = im.registry + "/" + s
	}
	if im.tag != "" {
		s += ":" + im.tag
	}
	if im.digest != "" {
		s += "@" + im.digest
	}
	return s
}

// overrideTag changes the tag and removes the digest. A value with an algorithm is a digest.
func (im *imageReference) overrideTag(o v1alpha1.ImageOverrider) {
	if o.Operator == v1alpha1.OverrideReplace && strings.Contains(o.Value, ":") {
		im.tag, im.digest = "", o.Value
		return
	}
	im.tag, im.digest = applyImageOperator(im.tag, o), ""
}

// overrideComponent changes one component, without a check of what results.
func (im *imageReference) overrideComponent(o v1alpha1.ImageOverrider) error {
	switch o.Component {
	case v1alpha1.ImageRegistry:
		im.registry = applyImageOperator(im.registry, o)
	case v1alpha1.ImageRepository:
		im.repository = applyImageOperator(im.repository, o)
	case v1alpha1.ImageTag:
		if o.Operator == v1alpha1.OverrideAdd && im.digest != "" {
			return fmt.Errorf("cannot add %q to the tag of %q: it has a digest, which decides what runs", o.Value, im)
		}
		im.overrideTag(o)
	case v1alpha1.ImageDigest:
		im.digest = applyImageOperator("", o)
	default:
		return fmt.Errorf("images have no component %q", o.Component)
	}
	return nil
}

// overrideImageReference changes one component. Replacing a tag removes the digest, which would
// otherwise still decide what runs.
func overrideImageReference(ref string, o v1alpha1.ImageOverrider) (string, error) {
	im, err := parseImage(ref)
	if err != nil {
		return "", err
	}
	if err := im.overrideComponent(o); err != nil {
		return "", err
	}
	changed := im.String()
	back, err := parseImage(changed)
	if err != nil {
		return "", fmt.Errorf("%s %s of %q: %w", o.Operator, o.Component, ref, err)
	}
	// A registry may contain the first part of a path. No other component may change its
	// neighbours.
	if back.tag != im.tag || back.digest != im.digest || o.Component != v1alpha1.ImageRegistry && back != im {
		return "", fmt.Errorf("%s %s of %q: %q is not a %s", o.Operator, o.Component, ref, o.Value, strings.ToLower(string(o.Component)))
	}
	return changed, nil
}

func applyImageOperator(old string, o v1alpha1.ImageOverrider) string {
	switch o.Operator {
	case v1alpha1.OverrideAdd:
		return old + o.Value
	case v1alpha1.OverrideRemove:
		return ""
	}
	return o.Value
}
