package tenancy

import apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// visitLeaves calls visit with the path of each leaf of a schema.
func visitLeaves(path string, s *apiextensionsv1.JSONSchemaProps, visit func(string)) {
	switch {
	case len(s.Properties) > 0:
		for name, p := range s.Properties {
			visitLeaves(path+"."+name, &p, visit)
		}
	case s.Items != nil && s.Items.Schema != nil:
		visitLeaves(path+"[]", s.Items.Schema, visit)
	default:
		visit(path)
	}
}
