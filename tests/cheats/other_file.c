/* expected: does not compile|includes "/ */
#include "/etc/passwd"
