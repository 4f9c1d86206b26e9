package labrun

// Below is the program with its guest's paths below a folder.
func (p Program) Below(root string) Program {
	p.root = root
	return p
}
