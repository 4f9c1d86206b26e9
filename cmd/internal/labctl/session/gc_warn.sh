# Writes a line to every open terminal: TERMINALS TEXT. One that was halted by Ctrl-S must not hold up the others.
for t in "$1"/[0-9]*; do
  [ -e "$t" ] || continue
  timeout 5 sh -c 'printf "\r\n\a*** %s ***\r\n" "$1" > "$2"' sh "$2" "$t" || :
done
