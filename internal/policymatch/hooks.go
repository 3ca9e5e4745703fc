package policymatch

import (
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

// annotatedHook returns the hook that annotations state: Atoll's own, or else those of Argo CD. Nil without either. Words
// without a meaning are an error in Atoll's own annotations. In those of Argo CD they are left out, as Argo CD does.
func annotatedHook(annotations map[string]string) (*atoll.Hook, error) {
	if events, stated := annotations[atoll.AnnotationHook]; stated {
		if strings.TrimSpace(events) == "" {
			return nil, nil
		}
		hook, unknown := atoll.ParseHook(events, annotations[atoll.AnnotationHookDelete])
		if len(unknown) > 0 {
			return nil, fmt.Errorf("annotations %s and %s: %s", atoll.AnnotationHook, atoll.AnnotationHookDelete, describeUnknownWords(unknown))
		}
		return hook, nil
	}
	events, stated := annotations[atoll.AnnotationArgoCDHook]
	if !stated {
		return nil, nil
	}
	hook, _ := atoll.ParseHook(events, annotations[atoll.AnnotationArgoCDHookDelete])
	return hook, nil
}

// CheckArgoCDHook returns what of the hook that Argo CD's annotations state is not read, and what follows. Nil: all is read, or
// other annotations count.
func CheckArgoCDHook(annotations map[string]string) error {
	events, stated := annotations[atoll.AnnotationArgoCDHook]
	if _, own := annotations[atoll.AnnotationHook]; own || !stated {
		return nil
	}
	hook, unknown := atoll.ParseHook(events, annotations[atoll.AnnotationArgoCDHookDelete])
	switch {
	case len(unknown) > 0 && len(hook.Events) == 0:
		return fmt.Errorf("annotation %s: %s: clusters do not apply the object", atoll.AnnotationArgoCDHook, describeUnknownWords(unknown))
	case len(unknown) > 0:
		return fmt.Errorf("annotations %s and %s: %s", atoll.AnnotationArgoCDHook, atoll.AnnotationArgoCDHookDelete, describeUnknownWords(unknown))
	}
	return nil
}

// describeUnknownWords describes words of a hook that have no meaning.
func describeUnknownWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = fmt.Sprintf("%.40q", word)
	}
	return strings.Join(quoted, ", ") + ": clusters run hooks in PreSync, Sync, PostSync, SyncFail, PreDelete and PostDelete, or never by Skip, and delete them by BeforeHookCreation, HookSucceeded and HookFailed"
}
